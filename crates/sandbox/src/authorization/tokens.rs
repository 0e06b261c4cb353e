//! The users of tokens.

use crate::{call::User, kinds::ResourceId, state::State, tokens::AUDIENCE};

/// Returns the user that a token identifies to one of some audiences, and those of them for which it is valid. Without
/// any, the audience is the API server.
pub(crate) fn user_of_token(state: &State, token: &str, audiences: &[String]) -> Option<(User, Vec<String>)> {
    if let Some(user) = state.options.users.get(token) {
        return Some((user.clone(), audiences.to_vec()));
    }
    let issued = state.tokens.get(token)?;
    let api = [AUDIENCE.to_owned()];
    let wanted = if audiences.is_empty() { &api[..] } else { audiences };
    let valid: Vec<String> = wanted.iter().filter(|one| issued.audiences.contains(one)).cloned().collect();
    let account = state.store.get(&ResourceId::new("", "serviceaccounts"), &issued.namespace, &issued.name)?;
    let exists = issued.bound.as_ref().is_none_or(|uid| state.store.find_uid(uid).is_some());
    if valid.is_empty() || *account.uid != *issued.uid || !exists || state.clock.now() >= issued.expires {
        return None;
    }
    let groups = ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{}", issued.namespace)];
    let name = format!("system:serviceaccount:{}:{}", issued.namespace, issued.name);
    Some((User::new(name, groups), valid))
}
