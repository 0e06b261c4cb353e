//! A watch across namespaces that becomes one watch for each of them where it is forbidden.

use std::collections::HashSet;

use futures::{
    StreamExt as _,
    stream::{BoxStream, SelectAll, unfold},
};

use super::{change::Change, driver::Driver};
use crate::decode::Shape;

/// A watch, or the parts that replace it.
pub(super) enum Watch<S> {
    One(Box<Driver<S>>),
    Parts(Parts<S>),
}

pub(super) struct Parts<S> {
    changes: SelectAll<BoxStream<'static, (usize, Change<S>)>>,
    /// The parts that cannot reach the server.
    away: HashSet<usize>,
    polls: bool,
}

impl<S: Shape> Watch<S> {
    /// Returns the next change, and the watch after it; none when the kind is gone.
    pub(super) async fn next(mut self) -> Option<(Change<S>, Self)> {
        loop {
            match self {
                Self::One(mut driver) => match driver.next().await {
                    Some(change) => return Some((change, Self::One(driver))),
                    None if driver.is_split() => self = Self::Parts(Parts::of(driver.split())),
                    None => return None,
                },
                Self::Parts(mut parts) => {
                    let change = parts.next().await?;
                    return Some((change, Self::Parts(parts)));
                }
            }
        }
    }
}

impl<S: Shape> Parts<S> {
    fn of(drivers: Vec<Driver<S>>) -> Self {
        let part = |(index, driver): (usize, Driver<S>)| {
            let changes = unfold(driver, async |mut driver| driver.next().await.map(|change| (change, driver)));
            changes.map(move |change| (index, change)).boxed()
        };
        Self { changes: drivers.into_iter().enumerate().map(part).collect(), away: HashSet::new(), polls: false }
    }

    /// Returns the next change. What happens to all parts is reported once.
    async fn next(&mut self) -> Option<Change<S>> {
        loop {
            let (part, change) = self.changes.next().await?;
            let is_news = match &change {
                Change::Present(_) | Change::Gone { .. } | Change::KindGone => true,
                Change::Away(_) => self.away.insert(part) && self.away.len() == 1,
                Change::Back => self.away.remove(&part) && self.away.is_empty(),
                Change::PollOnly(_) => !std::mem::replace(&mut self.polls, true),
            };
            if is_news {
                return Some(change);
            }
        }
    }
}
