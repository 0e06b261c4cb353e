//! A pass as a page that needs no other file and no network.

use super::{
    Pass, escaped,
    picture::{Grid, LEGEND, Line, class, sign},
};

const STYLE: &str = "body{font:14px sans-serif;color:#212121;margin:1.5em}h1{font-size:1.3em}\
.scroll{overflow:auto;max-height:85vh;border:1px solid #cfd8dc}table{border-collapse:separate;border-spacing:0}\
th,td{padding:6px 10px;text-align:left;vertical-align:top;border-bottom:1px solid #cfd8dc;white-space:nowrap}\
thead th{position:sticky;top:0;background:#eceff1;z-index:2}tbody th{position:sticky;left:0;background:#eceff1;z-index:1}\
thead th:first-child{left:0;z-index:3}.barrier{border-left:3px double #455a64}\
ul{list-style:none;margin:0;padding:0}.applied{color:#1b5e20}.created{color:#0d47a1}.deleted{color:#b71c1c;font-weight:bold}\
.out{color:#757575}.legend span{margin-right:1.5em}summary{cursor:pointer}details div{color:#424242;margin-left:1.4em;\
font-weight:normal}.blocked{color:#b71c1c}.out-switch:not(:checked)~.scroll li.out{display:none}";

/// Renders the page.
pub(crate) fn render(pass: &Pass<'_>, grid: &Grid) -> String {
    let summary = escaped(&pass.summary());
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{summary}</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n<h1>{summary}</h1>\n<p>{}</p>\n",
        escaped(&pass.execution())
    );
    for failure in &pass.preconditions {
        let (class, label) = if failure.blocks { ("blocked", "Blocked") } else { ("", "Warning") };
        out += &format!("<p class=\"{class}\">{label}: {}</p>\n", escaped(&failure.message));
    }
    out += "<p class=\"legend\">";
    for outcome in LEGEND {
        out += &format!("<span class=\"{}\">{} {outcome}</span>", class(outcome), sign(outcome));
    }
    out += "<span>║ barrier: everything to the left is done first</span></p>\n";
    out += "<input class=\"out-switch\" type=\"checkbox\" id=\"out\" checked><label for=\"out\"> show what is left out</label>\n";
    out += "<div class=\"scroll\"><table>\n<thead><tr><th>component</th>";
    for column in &grid.columns {
        out += &format!("<th{}>{}</th>", barrier(column.after_barrier), escaped(&column.title));
    }
    out += "</tr></thead>\n<tbody>\n";
    for (row, component) in grid.rows.iter().enumerate() {
        out += &format!("<tr><th>{}</th>", escaped(component));
        for (at, column) in grid.columns.iter().enumerate() {
            out += &format!("<td{}>", barrier(column.after_barrier));
            out += &grid.cells.get(&(row, at)).map(|lines| cell(lines)).unwrap_or_default();
            out += "</td>";
        }
        out += "</tr>\n";
    }
    out + "</tbody>\n</table></div>\n</body>\n</html>\n"
}

fn barrier(after_barrier: bool) -> &'static str {
    if after_barrier { " class=\"barrier\"" } else { "" }
}

fn cell(lines: &[Line]) -> String {
    let item = |line: &Line| {
        let details: String = line.details.iter().map(|text| format!("<div>{}</div>", escaped(text))).collect();
        let (class, sign, label) = (class(line.outcome), sign(line.outcome), escaped(&line.label));
        format!("<li class=\"{class}\"><details><summary>{sign} {label}</summary>{details}</details></li>")
    };
    format!("<ul>{}</ul>", lines.iter().map(item).collect::<String>())
}
