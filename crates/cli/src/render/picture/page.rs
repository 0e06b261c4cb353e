//! A picture as a page that needs no other file and no network.

use super::{Picture, escaped};
use crate::output::json;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// The digest of the script, so that a browser runs no other one whatever a name in the picture contains. A test computes it.
const DIGEST: &str = "sha256-nDvMZcsHNbupsDEI2M8HIHhVqREFx76xZ8wdm6BIL78=";

/// Renders the page: the shell, the script, and the picture as data that the script draws.
pub(super) fn render(picture: &Picture) -> String {
    let title = escaped(&picture.title);
    // Data cannot end its element: there, `<` is always an escape.
    let data = json(picture, false).unwrap_or_default().replace('<', "\\u003c");
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; script-src '{DIGEST}'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n{SHELL}\
         <script type=\"application/json\" id=\"data\">{data}</script>\n<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )
}

const SHELL: &str = r#"<header>
<h1 id="title"></h1>
<p id="facts"></p>
<div class="bar">
<label for="search">Search</label>
<input id="search" type="search" placeholder="kind, name, note (press /)" autocomplete="off" spellcheck="false" role="combobox" aria-controls="hits" aria-expanded="false">
<span id="count" role="status" aria-live="polite"></span>
<span id="legend" role="group" aria-label="Show"></span>
<button id="expand" type="button">expand all</button>
<button id="theme" type="button">dark or light</button>
<button id="keys" type="button" aria-expanded="false">keys</button>
</div>
<ul id="hits" hidden></ul>
<dl id="help" hidden>
<dt>/</dt><dd>search; ↓ moves to the results, Esc ends the search</dd>
<dt>↑ ↓ ← →</dt><dd>move between objects and columns</dd>
<dt>Enter</dt><dd>open a kind, or show what is known about an object</dd>
<dt>n, N</dt><dd>next or previous object with a warning</dd>
<dt>e</dt><dd>expand or collapse all</dd>
<dt>t</dt><dd>dark or light</dd>
<dt>?</dt><dd>show or hide this</dd>
</dl>
<details id="notices" hidden><summary></summary><ul></ul></details>
</header>
<main id="board" tabindex="-1"></main>
<aside id="details" aria-live="polite" hidden></aside>
<noscript><p>This page draws its picture with a script. The output formats svg and dot need none.</p></noscript>
"#;

#[cfg(test)]
mod tests {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use sha2::{Digest as _, Sha256};

    use super::*;
    use crate::render::picture::{Card, Item, Mark, Tone, dot, svg};

    #[test]
    fn only_the_script_of_the_page_may_run() {
        assert_eq!(DIGEST, format!("sha256-{}", STANDARD.encode(Sha256::digest(SCRIPT))));
    }

    #[test]
    fn no_text_ends_the_data_or_hides_in_it() {
        let hostile = "</script><img src=x onerror=hurt()><!--\u{202e}\u{9b}2J\"'&\u{ffff}\n";
        let mut picture = Picture::new(hostile, &[(Tone::Good, "+", hostile)]);
        picture.fact(hostile);
        picture.notice(Mark::new(Tone::Bad, hostile));
        picture.column(hostile, true);
        picture.lane(hostile);
        let mut card = Card::new(0, 0, hostile, hostile);
        card.add(hostile, Item::new(hostile, 0, [Mark::code(Tone::Warn, hostile)]));
        picture.card(card);
        let html = render(&picture);
        assert!(!html.contains("<img") && !html.contains("</script><") && !html.contains("<!--"), "{html}");
        let (svg, dot) = (svg::render(&picture), dot::render(&picture));
        assert!(!svg.contains("<img") && !svg.contains('\u{ffff}'), "{svg}");
        for drawn in [&html, &svg, &dot] {
            assert!(!drawn.contains(['\u{202e}', '\u{9b}']), "{drawn:?}");
        }
        let data = html.split("id=\"data\">").nth(1).and_then(|rest| rest.split("</script>").next()).unwrap();
        let data: serde_json::Value = serde_json::from_str(data).unwrap();
        assert!(data["title"].as_str().unwrap().starts_with("</script><img src=x onerror=hurt()><!--"));
    }
}
