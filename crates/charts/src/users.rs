//! Which users helm runs as.

use std::{
    fmt,
    ops::RangeInclusive,
    str::FromStr,
    sync::{Arc, Mutex, PoisonError},
};

/// IDs of users and of their groups, such as `65600` or `65600-65615`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserIds(RangeInclusive<u32>);

impl FromStr for UserIds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (first.parse(), last.parse()) {
            (Ok(first), Ok(last)) if first <= last => Ok(Self(first..=last)),
            _ => {
                Err("expected an ID such as 65600, or the first and the last of a range, such as 65600-65615"
                    .to_owned())
            }
        }
    }
}

/// The users that helm runs as, and their groups: one for all runs, or as many as there are runs at a time.
///
/// Files that only the controller may read, such as the token of its ServiceAccount, are then out of helm's reach, even if a
/// mistake in helm lets a chart read files. With several users, so are the files and processes of runs at the same time.
/// Clones share the users.
#[derive(Clone)]
pub struct HelmUsers(Arc<Mutex<Vec<Use>>>);

/// The use of a user.
#[derive(Debug)]
struct Use {
    id: u32,
    /// How many runs have the user now.
    runs: usize,
    /// The number of the last run that had it.
    last: u64,
}

/// Why helm cannot run as these users.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HelmUserError {
    /// It would have the rights of the controller.
    #[error("it must be another user than root and than that of the controller")]
    Same,
    /// Some runs at the same time would have the same user, which a range is meant to exclude.
    #[error("a range needs at least {0} users, because that many helms may run at the same time")]
    Few(usize),
    /// The IDs cannot be those of users, or are too many.
    #[error("a range has at most 1024 users, and the last ID is at most 4294967294")]
    Range,
    /// The controller may not run programs as other users.
    #[error("the controller must run as root to run helm as another user")]
    NotRoot,
    /// The controller lacks capabilities.
    #[error("the controller needs the capabilities {0} to run helm as another user")]
    Capabilities(String),
    /// The operating system does not tell the capabilities.
    #[error("only Linux is supported")]
    System,
}

impl HelmUsers {
    /// Checks that programs can be run as these users, and ended, and that a range has users for this number of runs at a time.
    ///
    /// # Errors
    ///
    /// When a user is root or that of this process, when a range has too few users, or when this process is not root with the
    /// capabilities that are needed: to run a program as another user, to give files to it, to read and delete those that it writes,
    /// and to kill it.
    pub fn new(ids: UserIds, runs: usize) -> Result<Self, HelmUserError> {
        let own = rustix::process::geteuid().as_raw();
        Self::check(&ids, runs, own)?;
        if own != 0 {
            return Err(HelmUserError::NotRoot);
        }
        check_capabilities()?;
        Ok(Self::of(ids))
    }

    fn check(UserIds(ids): &UserIds, runs: usize, own: u32) -> Result<(), HelmUserError> {
        let count = u64::from(ids.end() - ids.start()) + 1;
        if ids.contains(&0) || ids.contains(&own) {
            return Err(HelmUserError::Same);
        }
        // The last number stands for no user in system calls.
        if count > 1024 || *ids.end() == u32::MAX {
            return Err(HelmUserError::Range);
        }
        if count > 1 && count < u64::try_from(runs).unwrap_or(u64::MAX) {
            return Err(HelmUserError::Few(runs));
        }
        Ok(())
    }

    fn of(UserIds(ids): UserIds) -> Self {
        Self(Arc::new(Mutex::new(ids.map(|id| Use { id, runs: 0, last: 0 }).collect())))
    }

    /// Takes the user with the fewest runs for one more; of several, the one that was not used for longest: a program that was
    /// killed may take a moment to end.
    pub(crate) fn take(&self) -> HelmUser {
        let mut users = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = users.iter().map(|user| user.last).max().unwrap_or_default() + 1;
        let next = users.iter_mut().min_by_key(|user| (user.runs, user.last));
        let id = next.map_or(u32::MAX, |next| {
            (next.runs, next.last) = (next.runs + 1, number);
            next.id
        });
        HelmUser(Arc::new(Taken { id, users: self.clone() }))
    }
}

impl fmt::Debug for HelmUsers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HelmUsers").field(&self.0.lock().unwrap_or_else(PoisonError::into_inner)).finish()
    }
}

/// The user of a run, until the last clone is dropped.
#[derive(Clone, Debug)]
pub(crate) struct HelmUser(Arc<Taken>);

#[derive(Debug)]
struct Taken {
    id: u32,
    users: HelmUsers,
}

impl HelmUser {
    pub(crate) fn id(&self) -> u32 {
        self.0.id
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut users = self.users.0.lock().unwrap_or_else(PoisonError::into_inner);
        users.iter_mut().filter(|user| user.id == self.id).for_each(|user| user.runs -= 1);
    }
}

#[cfg(target_os = "linux")]
fn check_capabilities() -> Result<(), HelmUserError> {
    use rustix::thread::{CapabilitySet, capabilities};
    const NEEDED: [(CapabilitySet, &str); 5] = [
        (CapabilitySet::CHOWN, "CHOWN"),
        (CapabilitySet::DAC_OVERRIDE, "DAC_OVERRIDE"),
        (CapabilitySet::KILL, "KILL"),
        (CapabilitySet::SETGID, "SETGID"),
        (CapabilitySet::SETUID, "SETUID"),
    ];
    let own = capabilities(None).map_err(|_| HelmUserError::System)?.effective;
    let missing: Vec<_> = NEEDED.iter().filter(|(one, _)| !own.contains(*one)).map(|(_, name)| *name).collect();
    if missing.is_empty() { Ok(()) } else { Err(HelmUserError::Capabilities(missing.join(", "))) }
}

#[cfg(not(target_os = "linux"))]
fn check_capabilities() -> Result<(), HelmUserError> {
    Err(HelmUserError::System)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(text: &str) -> UserIds {
        text.parse().unwrap()
    }

    #[test]
    fn ids_are_one_or_a_range() {
        assert_eq!(ids("65600"), UserIds(65600..=65600));
        assert_eq!(ids("65600-65611"), UserIds(65600..=65611));
        for wrong in ["", "-", "a", "1-", "-1", "1-a", "1-2-3", "2-1", "4294967296", "1 - 2"] {
            assert!(wrong.parse::<UserIds>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_range_has_a_user_for_each_run_and_no_privileged_one() {
        let check = |text: &str, expected: Result<(), HelmUserError>| {
            assert_eq!(HelmUsers::check(&ids(text), 12, 1000), expected, "{text}");
        };
        check("65600", Ok(()));
        check("65600-65611", Ok(()));
        check("65600-66623", Ok(()));
        check("65600-65610", Err(HelmUserError::Few(12)));
        check("65600-66624", Err(HelmUserError::Range));
        check("1-4294967295", Err(HelmUserError::Same));
        check("4294967200-4294967295", Err(HelmUserError::Range));
        check("4294967295", Err(HelmUserError::Range));
        check("4294967200-4294967294", Ok(()));
        for same in ["0", "0-65611", "1000", "990-1010", "1000-1020", "980-1000"] {
            check(same, Err(HelmUserError::Same));
        }
    }

    #[test]
    fn each_run_gets_the_user_that_was_not_used_for_longest() {
        let users = HelmUsers::of(ids("1-3"));
        let (first, second) = (users.take(), users.take());
        assert_eq!([first.id(), second.id()], [1, 2]);
        let clone = first.clone();
        drop((first, second));
        // The first one is still used by a clone, and the second one was used more recently than the third one.
        let (third, fourth) = (users.take(), users.take());
        assert_eq!([third.id(), fourth.id()], [3, 2]);
        drop(clone);
        assert_eq!(users.take().id(), 1);
        drop(third);
        assert_eq!(users.clone().take().id(), 3);
    }

    #[test]
    fn one_user_has_all_runs() {
        let users = HelmUsers::of(ids("7"));
        let taken = [users.take(), users.take(), users.take()];
        assert!(taken.iter().all(|user| user.id() == 7));
    }
}
