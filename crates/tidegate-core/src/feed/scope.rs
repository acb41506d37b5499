//! What a feed shows at all: how far back it goes, whether one's own posts are in it, and how many of those who are
//! followed.

use super::place::WINDOW_MS;
use super::post::UserId;
use crate::Millis;

/// Most users that [`Scope::limit_to_recent`] may leave: so many fit a cursor.
pub const MAX_RECENT: usize = 500;
/// The shortest window, milliseconds.
pub const MIN_WINDOW_MS: i64 = 60_000;

/// What a feed shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scope {
    /// How far back it goes, [`MIN_WINDOW_MS`]`..=`[`WINDOW_MS`] milliseconds.
    pub window_ms: i64,
    /// Whether one's own posts are in one's feed.
    pub own_posts: bool,
    /// Of those who are followed only so many, `1..=`[`MAX_RECENT`]: who posted last, by the instant of the newest post, then
    /// by name. A walk keeps to those with whom its first page began. `None`: all of them.
    pub limit_to_recent: Option<usize>,
}

impl Default for Scope {
    fn default() -> Self {
        Self { window_ms: WINDOW_MS, own_posts: true, limit_to_recent: None }
    }
}

impl Scope {
    /// What is wrong with it.
    ///
    /// # Errors
    /// Says what can be.
    pub fn check(&self) -> Result<(), String> {
        if !(MIN_WINDOW_MS..=WINDOW_MS).contains(&self.window_ms) {
            return Err(format!("a feed goes back {MIN_WINDOW_MS} to {WINDOW_MS} ms (7 days)"));
        }
        match self.limit_to_recent {
            Some(limit) if !(1..=MAX_RECENT).contains(&limit) => {
                Err(format!("a feed is limited to 1 to {MAX_RECENT} users who posted last, or to none"))
            }
            _ => Ok(()),
        }
    }

    /// The beginning of the window.
    #[must_use]
    pub fn oldest(&self, now: Millis) -> Millis {
        now.plus(-self.window_ms)
    }
}

/// Those to whom a walk is limited, each as 48 bits of the XXH3 hash of his name, sorted. With a chance of 2^-48 for each pair
/// somebody else who is followed counts as one of them from the second page on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recent(Vec<u64>);

const BITS: u32 = 48;

fn mark(name: &UserId) -> u64 {
    xxhash_rust::xxh3::xxh3_64(name.as_str().as_bytes()) >> (u64::BITS - BITS)
}

impl Recent {
    /// These users.
    pub fn of<'a>(names: impl IntoIterator<Item = &'a UserId>) -> Self {
        let mut marks: Vec<u64> = names.into_iter().map(mark).collect();
        marks.sort_unstable();
        Self(marks)
    }

    /// Whether somebody is one of them.
    #[must_use]
    pub fn has(&self, name: &UserId) -> bool {
        self.0.binary_search(&mark(name)).is_ok()
    }

    /// How many they are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is nobody.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As bytes: 6 each.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|mark| mark.to_be_bytes()[2..].to_vec()).collect()
    }

    /// From its bytes. `None`: they are not those of such a set.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (marks, rest) = bytes.as_chunks::<6>();
        let mark = |[a, b, c, d, e, f]: &[u8; 6]| u64::from_be_bytes([0, 0, *a, *b, *c, *d, *e, *f]);
        let marks: Vec<u64> = marks.iter().map(mark).collect();
        (rest.is_empty() && marks.len() <= MAX_RECENT && marks.is_sorted()).then_some(Self(marks))
    }
}

/// The `limit` who posted last, if there are more: positions in `heads`, in no order. `heads`: an instant of each; `name`:
/// what decides between equal ones.
#[must_use]
pub fn recent<N: Ord>(heads: &[Millis], limit: usize, name: impl Fn(usize) -> N) -> Option<Vec<usize>> {
    if heads.len() <= limit || limit == 0 {
        return None;
    }
    let mut order: Vec<usize> = (0..heads.len()).collect();
    order.select_nth_unstable_by_key(limit - 1, |at| std::cmp::Reverse(heads[*at]));
    // Names decide who of those that posted in the last instant that counts.
    let least = heads[order[limit - 1]];
    let (mut chosen, mut equal): (Vec<usize>, Vec<usize>) =
        order.into_iter().filter(|at| heads[*at] >= least).partition(|at| heads[*at] > least);
    equal.sort_unstable_by_key(|at| name(*at));
    equal.truncate(limit - chosen.len());
    chosen.extend(equal);
    Some(chosen)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn user(n: usize) -> UserId {
        UserId::parse(&format!("u{n}")).expect("a name")
    }

    #[test]
    fn a_set_survives_its_bytes() {
        let names: Vec<UserId> = (0..MAX_RECENT).map(user).collect();
        let set = Recent::of(&names);
        assert_eq!(Recent::from_bytes(&set.to_bytes()), Some(set.clone()));
        assert!(names.iter().all(|name| set.has(name)) && !set.has(&user(MAX_RECENT)));
        let mut bytes = set.to_bytes();
        assert_eq!(bytes.len(), 6 * MAX_RECENT);
        assert_eq!(Recent::from_bytes(&bytes[1..]), None);
        bytes.swap(0, 6 * MAX_RECENT - 6);
        assert_eq!(Recent::from_bytes(&bytes), None, "it is not sorted");
        bytes.extend([0; 6]);
        assert_eq!(Recent::from_bytes(&bytes), None, "too many");
        assert_eq!(Recent::from_bytes(&[]), Some(Recent(vec![])));
    }

    #[test]
    fn bounds_are_told() {
        assert_eq!(Scope::default().check(), Ok(()));
        for bad in [
            Scope { window_ms: WINDOW_MS + 1, ..Scope::default() },
            Scope { window_ms: MIN_WINDOW_MS - 1, ..Scope::default() },
            Scope { limit_to_recent: Some(0), ..Scope::default() },
            Scope { limit_to_recent: Some(MAX_RECENT + 1), ..Scope::default() },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }

    proptest! {
        /// The few who posted last are those that sorting all of them gives.
        #[test]
        fn the_recent_are_the_first_of_all(heads in prop::collection::vec(0..6_i64, 0..30), limit in 0..12_usize) {
            let heads: Vec<Millis> = heads.into_iter().map(Millis).collect();
            let name = |at: usize| (at * 7) % 30;
            let mut all: Vec<usize> = (0..heads.len()).collect();
            all.sort_by_key(|at| (std::cmp::Reverse(heads[*at]), name(*at)));
            all.truncate(limit);
            all.sort_unstable();
            match recent(&heads, limit, name) {
                Some(mut chosen) => {
                    chosen.sort_unstable();
                    prop_assert_eq!(chosen, all);
                }
                None => prop_assert!(limit == 0 || heads.len() <= limit),
            }
        }
    }
}
