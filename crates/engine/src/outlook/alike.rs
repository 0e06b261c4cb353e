//! Objects of a kind with the same finalizers, of which a few stand for all, because one controller removes a finalizer from all of
//! them. So a question about ten thousand objects takes hardly longer than one about ten.

use std::collections::{BTreeMap, HashMap};

use super::Item;

/// In how many namespaces an object stands for the others there. In more, one controller serves them all.
const NAMESPACES: usize = 4;
/// How many objects are chosen.
const CHOSEN: usize = 1000;

/// Objects that stand for others.
pub(super) struct Chosen<'a> {
    /// Each with the number of those that it stands for, itself included.
    pub(super) objects: Vec<(Item<'a>, usize)>,
    /// How many objects none of them stands for.
    pub(super) left_out: usize,
}

/// Chooses some objects for all of these.
pub(super) fn choose<'a>(all: impl Iterator<Item = Item<'a>>) -> Chosen<'a> {
    // Of each kind and finalizers the position of the chosen one of each namespace. Each claim has a volume of its own.
    let mut alike: HashMap<_, BTreeMap<&str, usize>> = HashMap::new();
    let mut chosen = Chosen { objects: Vec::new(), left_out: 0 };
    for item in all {
        let (kind, (namespace, name), details) = item;
        let own = Some(name).filter(|_| kind.is("", "PersistentVolumeClaim"));
        let places = alike.entry((kind, details.finalizers.as_slice(), own)).or_default();
        let other = places.values().next_back().filter(|_| places.len() >= NAMESPACES);
        if let Some((_, count)) = places.get(namespace.as_str()).or(other).and_then(|at| chosen.objects.get_mut(*at)) {
            *count += 1;
        } else if chosen.objects.len() < CHOSEN {
            places.insert(namespace, chosen.objects.len());
            chosen.objects.push((item, 1));
        } else {
            chosen.left_out += 1;
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use billhook_objects::{GroupKind, Labels, Uid};

    use super::{
        super::{Details, Place},
        *,
    };

    /// Checks how many of these objects are chosen, for how many each, and how many are left out. The function says of each object
    /// its namespace and finalizer.
    fn check(kind: &str, count: usize, of: impl Fn(usize) -> (usize, usize), expected: (usize, &[usize], usize)) {
        let kind = GroupKind::new("", kind);
        let object = |n: usize| {
            let (namespace, finalizer) = of(n);
            let finalizers = vec![format!("f{finalizer}")];
            let details = Details { uid: Uid::new(format!("{n}")), labels: Labels::default(), finalizers };
            ((format!("n{namespace}"), format!("o{n}")), details)
        };
        let objects: Vec<(Place, Details)> = (0..count).map(object).collect();
        let chosen = choose(objects.iter().map(|(place, details)| (&kind, place, details)));
        let counts: Vec<usize> = chosen.objects.iter().map(|(_, count)| *count).collect();
        assert_eq!(counts.iter().sum::<usize>() + chosen.left_out, count, "each object is counted once");
        let first = &counts[..expected.1.len()];
        assert_eq!((counts.len(), first, chosen.left_out), expected, "{kind} {count}");
    }

    #[test]
    fn a_few_objects_stand_for_all() {
        check("Database", 0, |_| (0, 0), (0, &[], 0));
        check("Database", 10_000, |_| (0, 0), (1, &[10_000], 0));
        check("Database", 10_000, |n| (n % 3, 0), (3, &[3334, 3333, 3333], 0));
        // The last one stands for those in further namespaces, too.
        check("Database", 10_000, |n| (n, 0), (NAMESPACES, &[1, 1, 1, 9997], 0));
        check("Database", 10_000, |n| (0, n % 5), (5, &[2000; 5], 0));
        check("PersistentVolumeClaim", 100, |_| (0, 0), (100, &[1; 100], 0));
        // One client may give each of its objects another finalizer.
        check("Database", 10_000, |n| (0, n), (CHOSEN, &[1; CHOSEN], 9000));
        check("Database", 10_000, |n| (0, n % 2000), (CHOSEN, &[5; CHOSEN], 5000));
    }
}
