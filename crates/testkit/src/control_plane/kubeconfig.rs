//! Renders a kubeconfig with a context for each user.

use super::User;

/// Renders a kubeconfig for the server at `url`; the context of the first user is the current one.
pub(super) fn render(url: &str, ca_pem: &str, tokens: &[(User, String)]) -> String {
    let mut text = format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: testbed\n  cluster:\n    server: {url}\n    \
         certificate-authority-data: {}\ncontexts:\n",
        base64(ca_pem.as_bytes())
    );
    for (user, _) in tokens {
        let name = user.name();
        text += &format!("- name: {name}\n  context: {{cluster: testbed, user: {name}}}\n");
    }
    text += "users:\n";
    for (user, token) in tokens {
        text += &format!("- name: {}\n  user: {{token: {token}}}\n", user.name());
    }
    if let Some((user, _)) = tokens.first() {
        text += &format!("current-context: {}\n", user.name());
    }
    text
}

/// Encodes with the standard alphabet and padding, like certificates in a kubeconfig.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let digit = ALPHABET[(bits >> (18 - 6 * at)) as usize & 63];
            text.push(if at <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_padded() {
        for (plain, encoded) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")] {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
    }

    #[test]
    fn the_first_user_is_the_current_one() {
        let tokens = [(User::Admin, "a".to_owned()), (User::Restricted, "r".to_owned())];
        let text = render("https://127.0.0.1:1", "pem", &tokens);
        assert!(text.ends_with("current-context: admin\n"), "{text}");
        assert!(text.contains("- name: restricted\n  context: {cluster: testbed, user: restricted}\n"), "{text}");
    }
}
