//! String formats that Go's decoder or CustomResourceDefinitions check.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::pattern;

/// Returns the error of Go's base64 decoder.
pub(super) fn base64_error(text: &str) -> Option<String> {
    // Line breaks are skipped but counted.
    let bytes: Vec<(usize, u8)> = text.bytes().enumerate().filter(|(_, byte)| !matches!(byte, b'\r' | b'\n')).collect();
    let padding = bytes.iter().position(|(_, byte)| *byte == b'=').unwrap_or(bytes.len());
    let alphabet = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let offset = |index: usize| bytes.get(index).map_or(text.len(), |(offset, _)| *offset);
    let at = match bytes[..padding].iter().find(|(_, byte)| !alphabet(*byte)) {
        Some((at, _)) => *at,
        None => match (padding % 4, bytes.len() - padding) {
            (0, 0) | (2, 2) | (3, 1) if bytes[padding..].iter().all(|(_, byte)| *byte == b'=') => return None,
            // The position of the incomplete group.
            (rest, 0) => text.len() - rest,
            (2, 1) => text.len(),
            (2, _) if bytes.get(padding + 1).is_some_and(|(_, byte)| *byte != b'=') => offset(padding + 1) - 1,
            (2, _) => offset(padding + 2),
            (3, _) => offset(padding + 1),
            _ => offset(padding),
        },
    };
    Some(format!("illegal base64 data at input byte {at}"))
}

/// Returns the error for an invalid quantity.
pub(super) fn quantity_error(text: &str) -> Option<&'static str> {
    const FORM: &str = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    const SUFFIXES: [&str; 16] = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let text = text.trim();
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end =
        unsigned.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    if number.matches('.').count() > 1 || !number.contains(|character: char| character.is_ascii_digit()) {
        return Some(FORM);
    }
    let exponent = suffix.strip_prefix(['e', 'E']).map(|rest| rest.strip_prefix(['+', '-']).unwrap_or(rest));
    if exponent.is_some_and(digits) || SUFFIXES.contains(&suffix) {
        return None;
    }
    let letters = suffix.trim_end_matches(|character: char| character.is_ascii_digit());
    let letters = letters.strip_suffix(['+', '-']).unwrap_or(letters);
    let formed = letters.chars().all(|character| "eEinumkKMGTP".contains(character));
    Some(if formed { "unable to parse quantity's suffix" } else { FORM })
}

/// Returns the error of Go's time parser.
pub(super) fn time_error(text: &str) -> Option<String> {
    const LAYOUT: &str = "2006-01-02T15:04:05Z07:00";
    let mut rest = text;
    for part in ["2006", "-", "01", "-", "02", "T", "15", ":", "04", ":", "05", "Z07:00"] {
        let digit = |character: char| character.is_ascii_digit();
        let after = match part {
            "Z07:00" => zone(rest).then_some(""),
            _ if part.starts_with(digit) => {
                rest.get(..part.len()).filter(|read| read.chars().all(digit)).map(|_| &rest[part.len()..])
            }
            _ => rest.strip_prefix(part),
        };
        let Some(after) = after else {
            return Some(format!("parsing time {text:?} as {LAYOUT:?}: cannot parse {rest:?} as {part:?}"));
        };
        let number = rest[..rest.len() - after.len()].parse().unwrap_or(1);
        let (name, range) = match part {
            "01" => ("month", 1..=12),
            "15" => ("hour", 0..=23),
            "04" => ("minute", 0..=59),
            "05" => ("second", 0..=59),
            _ => ("", 0..=u16::MAX),
        };
        if !range.contains(&number) {
            return Some(format!("parsing time {text:?}: {name} out of range"));
        }
        rest = after;
        if part == "05" {
            let fraction = rest.strip_prefix('.').filter(|fraction| fraction.starts_with(digit));
            rest = fraction.map_or(rest, |fraction| fraction.trim_start_matches(digit));
        }
    }
    text.parse::<jiff::Timestamp>().is_err().then(|| format!("parsing time {text:?}: day out of range"))
}

/// Returns whether a text is a time zone: `Z` or `+01:00`.
fn zone(text: &str) -> bool {
    let offset = text.strip_prefix(['+', '-']).and_then(|offset| offset.split_once(':'));
    let two = |text: &str| text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
    text == "Z" || offset.is_some_and(|(hours, minutes)| two(hours) && two(minutes))
}

/// Returns whether definitions may use a format. Other formats are ignored.
pub(super) fn is_known(format: &str) -> bool {
    const KNOWN: &str = " bsonobjectid byte cidr creditcard date datetime duration email hexcolor hostname ipv4 ipv6 \
        isbn isbn10 isbn13 k8slongname k8sshortname mac password rgbcolor ssn uri uuid uuid3 uuid4 uuid5 ";
    !format.is_empty() && KNOWN.contains(&format!(" {} ", normalized(format)))
}

/// Removes dashes, which do not distinguish formats.
fn normalized(format: &str) -> String {
    format.replace('-', "")
}

/// Returns whether a text has a format. The formats of ISBNs, credit cards, colours and social security numbers are not
/// checked.
pub(super) fn matches(format: &str, text: &str) -> bool {
    let is = |expression: &str| pattern::compile(expression).is_ok_and(|regex| regex.is_match(text));
    let is_uuid = || is("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$");
    match normalized(format).as_str() {
        "byte" => base64_error(text).is_none() && !text.contains(['\r', '\n']),
        "datetime" => time_error(&text.to_uppercase()).is_none(),
        "date" => text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok(),
        "duration" => is(r"^([-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)\s*[a-zµμ]+)+$|^[-+]?0$"),
        "uuid" => is_uuid(),
        "uuid3" | "uuid4" | "uuid5" => {
            is_uuid() && text.replace('-', "").as_bytes().get(12) == format.as_bytes().last()
        }
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr(text),
        "mac" => is("^([0-9a-fA-F]{2}[:-]){5}[0-9a-fA-F]{2}$|^([0-9a-fA-F]{4}[.]){2}[0-9a-fA-F]{4}$"),
        "email" => is(r"^[^\s@<>]+@[^\s@<>]+$|^.*<[^\s@<>]+@[^\s@<>]+>$"),
        "hostname" => {
            text.len() <= 255 && text.split('.').all(|label| label.len() <= 63) && is(r"^[^\s_/:@.]+(\.[^\s_/:@.]+)*$")
        }
        "uri" => is(r"^([a-zA-Z][-+.a-zA-Z0-9]*:|/)\S*$"),
        "k8sshortname" => text.len() <= 63 && is("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"),
        "k8slongname" => text.len() <= 253 && is(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"),
        _ => true,
    }
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let limit = match address.parse() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    bits.parse::<u8>().is_ok_and(|bits| bits <= limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_errors_have_the_position_that_go_reports() {
        let at = |text| base64_error(text).map(|error| error.rsplit(' ').next().unwrap().parse::<usize>().unwrap());
        let cases = [
            ("", None),
            ("YQ==", None),
            ("YWI=", None),
            ("YWJj\n", None),
            ("abc", Some(0)),
            ("%%", Some(0)),
            ("YWJjZA", Some(4)),
            ("YQ=", Some(3)),
            ("YQ=a", Some(2)),
            ("YQ==a", Some(4)),
            ("=", Some(0)),
            ("YWI=a", Some(4)),
            ("Y", Some(0)),
            ("YW\nJ", Some(1)),
            ("YQ\n=", Some(4)),
            ("a=b=", Some(1)),
            ("YWJj=", Some(4)),
            ("YQ= =", Some(2)),
        ];
        for (text, expected) in cases {
            assert_eq!(at(text), expected, "{text:?}");
        }
    }

    #[test]
    fn quantities() {
        for good in ["1", "100m", "1.5Gi", "-1", ".5", "1e3", "1E-3", "12E", "0"] {
            assert_eq!(quantity_error(good), None, "{good}");
        }
        for (bad, why) in [
            ("abc", "match"),
            ("", "match"),
            ("1.2.3", "match"),
            ("1Kib", "match"),
            ("1K", "suffix"),
            ("1ki", "suffix"),
        ] {
            assert!(quantity_error(bad).is_some_and(|error| error.contains(why)), "{bad}");
        }
    }

    #[test]
    fn times() {
        assert_eq!(time_error("2026-01-01T00:00:00Z"), None);
        assert_eq!(time_error("2026-01-01T00:00:00.123456+02:00"), None);
        let refused = |text, rest: &str| {
            let error = time_error(text).unwrap();
            assert!(error.ends_with(rest), "{error}");
        };
        refused("x", "cannot parse \"x\" as \"2006\"");
        refused("2026-01-01", "cannot parse \"\" as \"T\"");
        refused("2026-01-01T00:00:00", "cannot parse \"\" as \"Z07:00\"");
        refused("2026-01-01T00:00:00.Z", "cannot parse \".Z\" as \"Z07:00\"");
        refused("2026-02-31T00:00:00Z", "\": day out of range");
        refused("2026-13-01T00:00:00Z", "\": month out of range");
        refused("2026-01-01T25:00:00Z", "\": hour out of range");
    }

    #[test]
    fn formats() {
        for (format, good, bad) in [
            ("date-time", "2026-01-01T00:00:00Z", "now"),
            ("date", "2026-01-01", "2026-13-01"),
            ("byte", "YQ==", "%"),
            ("duration", "1h30m", "soon"),
            ("ipv4", "10.0.0.1", "10.0.0"),
            ("ipv6", "::1", "10.0.0.1"),
            ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
            ("uuid4", "8f1a2b3c-0d1e-4f2a-8b3c-4d5e6f708192", "8f1a2b3c-0d1e-1f2a-8b3c-4d5e6f708192"),
            ("email", "a@b.c", "a"),
            ("uri", "https://a.b/c", "a b"),
            ("hostname", "a.b", "a_b"),
            ("k8s-short-name", "a-b", "A"),
        ] {
            assert!(is_known(format) && matches(format, good) && !matches(format, bad), "{format}");
        }
        assert!(!is_known("int-or-string") && !is_known("") && !is_known("i"));
    }
}
