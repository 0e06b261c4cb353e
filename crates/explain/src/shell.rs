//! Words of commands.

/// Quotes a word of a command for a shell. Roles may have any name, also one that a shell would run.
pub fn quoted(word: &str) -> String {
    // Some shells replace a word that begins with `=`.
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%,=".contains(c);
    if !word.is_empty() && !word.starts_with('=') && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn a_shell_reads_one_word() {
        let check = |word: &str, expected: &str| assert_eq!(quoted(word), expected);
        check("pod/web-1", "pod/web-1");
        check("system:node@a", "system:node@a");
        check("", "''");
        check("a=b", "a=b");
        check("=b", "'=b'");
        check("é", "'é'");
        check("a; rm -rf ~", "'a; rm -rf ~'");
        check("a'$(b)", r"'a'\''$(b)'");
    }
}
