//! Pages of what the store has, by what this process knows of authors in short.

use std::sync::Arc;

use futures_util::future::try_join_all;
use tidegate_backend::feed::{MAX_FEED_READS, MAX_PART, Reads, RootRead, SetRead};
use tidegate_core::feed::change::is_beyond;
use tidegate_core::feed::scope::recent;
use tidegate_core::feed::{
    AuthorSet, Content, Edge, End, Entry, MAX_WHOLE_REPOSTS, Order, PostId, Range, Recent, Repost, Reposts, SetPart,
    StoredPost, UserId, Walk, Want,
};
use tidegate_core::{Map, Millis};

use super::inner::{Counts, Inner};
use super::mirror::{Circle, Point};
use super::options::PageCost;
use super::posts;
use super::walker::{Looked, Root, Source, Stop, see};
use crate::cache::Read;

/// A post that is looked for.
type Post = Option<Arc<StoredPost>>;

/// That a root is gone which is known by its reposts alone is believed once that is older than this, milliseconds. Whatever an
/// author's set has is believed to be gone by nobody but the ledger: the name may have been published since.
const DOUBTFUL_MS: u128 = 2_000;
/// Rounds of learning heads, and looking which are still unknown.
const MAX_LEARNING: usize = 4;

/// What a page is made with.
pub(super) struct FromStore<'a> {
    pub(super) feed: &'a Inner,
    pub(super) viewer: &'a UserId,
    pub(super) point: Point,
    pub(super) owner: u32,
    /// Himself and whom he follows.
    pub(super) followed: Arc<Circle>,
    /// Those of them to whom the walk is limited.
    pub(super) circle: Arc<Circle>,
    /// The same, as a cursor has it. `None`: to nobody.
    pub(super) recent: Option<Recent>,
    pub(super) order: Order,
    pub(super) range: Range,
    /// The beginning of the window.
    pub(super) window: Millis,
    /// The log's number as of which the page is.
    pub(super) seq: u64,
    /// The news were not read yet.
    pub(super) is_first: bool,
    /// A page has to come of it now.
    pub(super) lenient: bool,
    /// Somebody may have a post at the end of the range or after it.
    pub(super) has_future: bool,
    /// Some of what was looked at is not there.
    pub(super) has_absent: bool,
    pub(super) cost: PageCost,
}

/// Whether a post is the one that an author's set has at an instant, and not an older one of the same name.
fn is_so(post: &tidegate_core::feed::Post, author: &UserId, at: Millis) -> bool {
    post.published_at == at && post.author == *author && matches!(post.content, Content::Body(_))
}

/// The instant of an edge.
fn instant(edge: &Edge) -> Millis {
    match edge {
        Edge::Instant(at) => *at,
        Edge::Before(place) | Edge::After(place) => place.at,
    }
}

/// A part of a set that was read whole.
fn part_of(set: &AuthorSet, order: Order, beyond: &Edge, max: usize) -> SetPart {
    let is_in = |entry: &&Entry| is_beyond(order, beyond, &entry.place);
    let mut entries: Vec<Entry> = match order {
        Order::Newest => set.entries.iter().filter(is_in).take(max + 1).cloned().collect(),
        Order::Oldest => set.entries.iter().rev().filter(is_in).take(max + 1).cloned().collect(),
    };
    let more = entries.len() > max;
    entries.truncate(max);
    SetPart { version: set.version, from: set.from, entries, more }
}

impl<'a> FromStore<'a> {
    /// Reads whom the viewer follows.
    pub(super) async fn circle(
        feed: &Inner,
        viewer: &UserId,
        point: Point,
        owner: u32,
        cost: &mut PageCost,
    ) -> Result<Arc<Circle>, Stop> {
        if let Some(circle) = feed.mirror.circle(point, owner) {
            return Ok(circle);
        }
        cost.rounds += 1;
        let mut found = feed.ask(Reads { news: true, users: vec![viewer.clone()], ..Reads::default() }).await?;
        let least = feed.mirror.ties_floor(point, owner)?.max(feed.owed.user(viewer));
        let ties = match found.users.pop().flatten() {
            Some(ties) if ties.version >= least => ties,
            _ => {
                cost.ledger_reads += 1;
                feed.fetch_ties(viewer).await?
            }
        };
        Ok(feed.mirror.learn_ties(point, owner, &ties)?)
    }

    /// The heads with which a walk begins; it `may_choose` to whom it is limited, if it is the first of its pages.
    pub(super) async fn begin(&mut self, may_choose: bool) -> Result<Vec<(u32, Millis)>, Stop> {
        if let Some(recent) = &self.recent {
            let circle = self.feed.mirror.limited(self.point, self.owner, &self.followed, recent)?;
            self.circle = Arc::new(circle);
            return self.heads(self.range.low).await;
        }
        let limit = self.feed.options.scope.limit_to_recent.filter(|limit| self.followed.sources().len() > *limit);
        let Some(limit) = limit.filter(|_| may_choose) else { return self.heads(self.range.low).await };
        // Who posted last is known once the news are.
        self.feed.refresh_news().await?;
        if self.feed.mirror.ties_floor(self.point, self.owner)? > self.followed.version && !self.lenient {
            return Err(Stop::Again);
        }
        let mut heads = self.heads(self.window).await?;
        let others: Vec<(u32, Millis)> = heads.iter().filter(|(number, _)| *number != self.owner).copied().collect();
        let (numbers, instants): (Vec<u32>, Vec<Millis>) = others.into_iter().unzip();
        let names = self.feed.mirror.names(self.point, &numbers)?;
        if let Some(chosen) = recent(&instants, limit, |at| &names[at]) {
            self.recent = Some(Recent::of(chosen.iter().map(|at| &names[*at])));
            let own = self.followed.has(self.owner).then_some(self.owner);
            let sources = chosen.into_iter().map(|at| numbers[at]).chain(own).collect();
            self.circle = Arc::new(self.followed.only(sources));
        }
        let circle = &self.circle;
        heads.retain(|(number, newest)| *newest >= self.range.low && circle.has(*number));
        Ok(heads)
    }

    /// The heads of the circle that reach `low`.
    async fn heads(&mut self, low: Millis) -> Result<Vec<(u32, Millis)>, Stop> {
        for _ in 0..MAX_LEARNING {
            let scan = self.feed.mirror.scan(self.point, &self.circle, low)?;
            if scan.unknown.is_empty() {
                self.seq = scan.seq;
                return Ok(scan.heads);
            }
            self.learn(scan.unknown).await?;
        }
        Err(Stop::Again)
    }

    /// Learns the heads of authors: from the store, and what that lacks from the ledger.
    async fn learn(&mut self, unknown: Vec<u32>) -> Result<(), Stop> {
        self.cost.heads += unknown.len() as u64;
        self.cost.rounds += 1;
        let feed = self.feed;
        let mut left = self.learn_from_store(&unknown).await?;
        if left.is_empty() {
            return Ok(());
        }
        let names = feed.mirror.names(self.point, &left)?;
        let before = feed.mirror.floors(self.point, left.iter().copied())?;
        let least = self.least(&left, &names)?;
        let sets = feed.fetch_authors(&names, &least, &mut self.cost).await?;
        let heads: Vec<_> =
            left.iter().zip(&sets).map(|(number, set)| (*number, set.as_ref().map(AuthorSet::head))).collect();
        feed.mirror.learn(self.point, &heads, self.window, Some(&before))?;
        left = left.into_iter().zip(&sets).filter(|(_, set)| set.is_none()).map(|(number, _)| number).collect();
        if !left.is_empty() {
            self.learn_from_store(&left).await?;
        }
        Ok(())
    }

    async fn learn_from_store(&self, unknown: &[u32]) -> Result<Vec<u32>, Stop> {
        let (feed, point) = (self.feed, self.point);
        let parts = unknown.chunks(MAX_FEED_READS).map(|part| async move {
            let heads = feed.mirror.names(point, part)?;
            let names = heads.clone();
            let found = feed.ask(Reads { heads, ..Reads::default() }).await?;
            let head = |(at, head): (usize, &Option<_>)| {
                let head: Option<tidegate_core::feed::Head> = *head;
                (part[at], head.filter(|head| head.version >= feed.owed.author(&names[at])))
            };
            Ok::<_, Stop>(found.heads.iter().enumerate().take(part.len()).map(head).collect::<Vec<_>>())
        });
        let found = try_join_all(parts).await?.concat();
        Ok(feed.mirror.learn(point, &found, self.window, None)?)
    }

    /// The versions below which the store's sets of authors are too old.
    fn least(&self, numbers: &[u32], names: &[UserId]) -> Result<Vec<u64>, Stop> {
        let known = self.feed.mirror.floors(self.point, numbers.iter().copied())?;
        Ok(known.into_iter().zip(names).map(|(known, name)| known.max(self.feed.owed.author(name))).collect())
    }

    /// Parts of sets, with the news in the first round.
    async fn parts(&mut self, wants: &[Want<u32>]) -> Result<Vec<SetPart>, Stop> {
        let feed = self.feed;
        let numbers: Vec<u32> = wants.iter().map(|want| want.author).collect();
        let names = feed.mirror.names(self.point, &numbers)?;
        let read = |at: usize| SetRead {
            author: names[at].clone(),
            order: self.order,
            beyond: wants[at].beyond.clone(),
            max: wants[at].max.min(MAX_PART),
        };
        self.cost.rounds += 1;
        self.cost.sets += wants.len() as u64;
        Counts::add(&feed.counts.sets, wants.len());
        let sets = (0..wants.len()).map(read).collect();
        let found = feed.ask(Reads { news: self.is_first, sets, ..Reads::default() }).await?.sets;
        let least = self.least(&numbers, &names)?;
        let good = |at: usize, part: Option<SetPart>| part.filter(|part| part.version >= least[at]);
        let mut parts: Vec<Option<SetPart>> = found
            .into_iter()
            .chain(std::iter::repeat(None))
            .take(wants.len())
            .enumerate()
            .map(|(at, p)| good(at, p))
            .collect();
        let missing: Vec<usize> = (0..wants.len()).filter(|at| parts[*at].is_none()).collect();
        if !missing.is_empty() {
            let some: Vec<UserId> = missing.iter().map(|at| names[*at].clone()).collect();
            let floors: Vec<u64> = missing.iter().map(|at| least[*at]).collect();
            let fetched = feed.fetch_authors(&some, &floors, &mut self.cost).await?;
            let mut again = Vec::new();
            for (at, set) in missing.into_iter().zip(fetched) {
                match set {
                    Some(set) => parts[at] = Some(part_of(&set, self.order, &wants[at].beyond, wants[at].max)),
                    None => again.push(at),
                }
            }
            if !again.is_empty() {
                self.cost.rounds += 1;
                let sets = again.iter().map(|at| read(*at)).collect();
                let found = feed.ask(Reads { sets, ..Reads::default() }).await?.sets;
                again.into_iter().zip(found).for_each(|(at, part)| parts[at] = good(at, part));
            }
        }
        let parts: Option<Vec<SetPart>> = parts.into_iter().collect();
        // It was there a moment ago.
        let parts = parts.ok_or(Stop::Again)?;
        let mut whole = Vec::with_capacity(parts.len());
        for ((part, want), name) in parts.into_iter().zip(wants).zip(&names) {
            whole.push(self.deepen(part, want, name).await?);
        }
        Ok(whole)
    }

    /// What a set lacks because it has too many posts for a copy is read from the ledger.
    async fn deepen(&mut self, mut part: SetPart, want: &Want<u32>, name: &UserId) -> Result<SetPart, Stop> {
        if part.from <= self.range.low {
            return Ok(part);
        }
        match self.order {
            Order::Newest if part.more || part.entries.len() >= want.max => {}
            Order::Newest => {
                let max = want.max - part.entries.len();
                let beyond = Edge::Instant(part.from).min(want.beyond.clone());
                let deep = self.entries(name, &beyond, max).await?;
                part.more = deep.len() == max;
                part.entries.extend(deep);
            }
            Order::Oldest if part.from <= instant(&want.beyond) => {}
            Order::Oldest => {
                part.entries = self.entries(name, &want.beyond, want.max).await?;
                part.more = part.entries.len() == want.max;
            }
        }
        Ok(part)
    }

    async fn entries(&mut self, name: &UserId, beyond: &Edge, max: usize) -> Result<Vec<Entry>, Stop> {
        self.cost.ledger_reads += 1;
        let _turn = self.feed.turn().await?;
        Ok(self.feed.ledger.entries(name, self.order, beyond, max.min(MAX_PART)).await?)
    }

    /// What happened to the circle meanwhile, as the first news tell.
    fn catch_up(&mut self, walk: &mut Walk<u32>) -> Result<(), Stop> {
        self.is_first = false;
        let since = self.feed.mirror.since(self.point, self.owner, &self.circle, self.seq)?;
        if since.other_ties && !self.lenient {
            return Err(Stop::Again);
        }
        self.seq = since.seq;
        let top = instant(&self.range.top);
        for (author, newest) in since.raised {
            self.has_future |= newest >= top;
            walk.raise(author, newest.min(top));
        }
        Ok(())
    }

    /// Posts, in order, and the reposts of those that were shown again: which of them were is known once they are there. (To ask
    /// for those of all meanwhile costs every page more than the wait costs those that have reposts.)
    async fn posts_and_reposts(
        &mut self,
        roots: &[PostId],
        listed: &[Vec<(UserId, Millis)>],
    ) -> Result<(Vec<Post>, Map<PostId, Vec<Repost>>), Stop> {
        let reads = posts::get_many(&self.feed.posts, roots).await?;
        let posts = self.posts(roots, listed, reads).await?;
        let shown_again =
            |(root, post): (&PostId, &Post)| post.as_ref().is_some_and(|post| post.reposts > 0).then(|| root.clone());
        let shown_again: Vec<PostId> = roots.iter().zip(&posts).filter_map(shown_again).collect();
        let reposts = if shown_again.is_empty() { Map::default() } else { self.reposts(&shown_again).await? };
        Ok((posts, reposts))
    }

    /// What the cache said of posts. Those that are not there, or not what an author's set says, are looked for in the ledger, if
    /// that may be news to the cache: of new posts, and of those of a user who is gone, other processes' caches are told after the
    /// store.
    async fn posts(
        &mut self,
        ids: &[PostId],
        listed: &[Vec<(UserId, Millis)>],
        reads: Vec<Read<StoredPost>>,
    ) -> Result<Vec<Post>, Stop> {
        let is_doubtful = |at: &usize| {
            let read = &reads[*at];
            match &read.value {
                Some(stored) => !listed[*at].iter().all(|(author, at)| is_so(&stored.post, author, *at)),
                None => !listed[*at].is_empty() || read.age.as_millis() < DOUBTFUL_MS,
            }
        };
        let doubtful: Vec<usize> = (0..reads.len()).filter(is_doubtful).collect();
        let mut found: Vec<Post> = reads.into_iter().map(|read| read.value).collect();
        if !doubtful.is_empty() {
            let some: Vec<PostId> = doubtful.iter().map(|at| ids[*at].clone()).collect();
            let _turn = self.feed.turn().await?;
            let looked = self.feed.ledger.posts(&some).await?;
            doubtful.into_iter().zip(looked).for_each(|(at, post)| found[at] = post.map(Arc::new));
        }
        self.has_absent |= found.iter().any(Option::is_none);
        Ok(found)
    }

    /// Reposts of roots, by those in the circle at least.
    async fn reposts(&mut self, roots: &[PostId]) -> Result<Map<PostId, Vec<Repost>>, Stop> {
        let feed = self.feed;
        self.cost.rounds += 1;
        let found = feed.ask_reposts(roots).await?;
        let mut all = Map::default();
        let mut many = Vec::new();
        let mut missing = Vec::new();
        for (root, reposts) in roots.iter().zip(found) {
            match reposts {
                // What the store has is too old for this process' own pages.
                _ if feed.owed.has_root(root) => missing.push((root, false)),
                Some(Reposts::All(reposts) | Reposts::Among(reposts)) => drop(all.insert(root.clone(), reposts)),
                Some(Reposts::Many(_)) => many.push(root),
                None => missing.push((root, true)),
            }
        }
        if many.is_empty() && missing.is_empty() {
            return Ok(all);
        }
        let sources = feed.mirror.names(self.point, self.circle.sources())?;
        for root in many {
            for among in Inner::among(&sources) {
                self.cost.rounds += 1;
                let read = RootRead { root: root.clone(), among: Some(among) };
                let found = feed.ask(Reads { roots: vec![read], ..Reads::default() }).await?.roots.pop().flatten();
                match found {
                    Some(Reposts::All(reposts) | Reposts::Among(reposts)) => {
                        all.entry(root.clone()).or_insert_with(Vec::new).extend(reposts);
                    }
                    _ => {
                        missing.push((root, true));
                        break;
                    }
                }
            }
        }
        for (root, fill) in missing {
            self.cost.ledger_reads += 1;
            all.insert(root.clone(), feed.fetch_reposts(root, &sources, fill).await?);
        }
        // Of few reposts that are read in parts each part has all.
        for reposts in all.values_mut().filter(|reposts| reposts.len() > MAX_WHOLE_REPOSTS) {
            reposts.sort_unstable_by(|a, b| a.user.cmp(&b.user));
            reposts.dedup_by(|a, b| a.user == b.user);
        }
        Ok(all)
    }
}

impl Source for FromStore<'_> {
    type Author = u32;

    async fn read(&mut self, walk: &mut Walk<u32>, wants: Vec<Want<u32>>) -> Result<(), Stop> {
        let parts = self.parts(&wants).await?;
        for (want, part) in wants.iter().zip(parts) {
            walk.told(want, part.entries, part.more);
        }
        if self.is_first { self.catch_up(walk) } else { Ok(()) }
    }

    async fn is_really_the_end(&mut self, walk: &mut Walk<u32>) -> Result<bool, Stop> {
        if !self.is_first {
            return Ok(true);
        }
        // There was no round that could bring the news.
        self.cost.rounds += 1;
        self.feed.ask(Reads { news: true, ..Reads::default() }).await?;
        self.catch_up(walk)?;
        Ok(false)
    }

    async fn look(&mut self, roots: &[Root<u32>]) -> Result<Vec<Looked>, Stop> {
        self.cost.roots += roots.len() as u64;
        let numbers: Vec<u32> = roots.iter().flat_map(|root| &root.listed).map(|(author, _)| *author).collect();
        let mut names = self.feed.mirror.names(self.point, &numbers)?.into_iter();
        let mut named = |root: &Root<u32>| -> Vec<(UserId, Millis)> {
            root.listed.iter().map(|(_, at)| *at).zip(names.by_ref()).map(|(at, name)| (name, at)).collect()
        };
        let listed: Vec<_> = roots.iter().map(&mut named).collect();
        let roots: Vec<PostId> = roots.iter().map(|root| root.id.clone()).collect();
        let (posts, reposts) = self.posts_and_reposts(&roots, &listed).await?;
        let users = || {
            let authors = posts.iter().flatten().map(|post| &post.post.author);
            authors.chain(reposts.values().flatten().map(|repost| &repost.user))
        };
        let places = self.feed.mirror.places_of(self.point, &self.circle, users())?;
        let places: Map<&UserId, (bool, bool)> = users().zip(places).collect();
        let place_of = |user: &UserId| places.get(user).copied().unwrap_or_default();
        let none = Vec::new();
        let look = |(root, post): (&PostId, &Post)| {
            see(self.viewer, post.as_ref(), reposts.get(root).unwrap_or(&none), place_of)
        };
        Ok(roots.iter().zip(&posts).map(look).collect())
    }

    async fn end(&mut self) -> Result<End, Stop> {
        if self.range.is_empty() || self.recent.is_some() {
            return Ok(End::Window);
        }
        let within = (self.range.low, instant(&self.range.top));
        for _ in 0..MAX_LEARNING {
            match self.feed.mirror.end(self.point, &self.circle, self.order, within)? {
                Ok(end) => return Ok(end),
                Err(unknown) => self.learn(unknown).await?,
            }
        }
        Err(Stop::Again)
    }

    fn is_lenient(&self) -> bool {
        self.lenient
    }
}
