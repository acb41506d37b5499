//! A whole community in memory: the meaning of every operation. No care is taken to be fast.

use std::collections::{BTreeMap, BTreeSet};

use super::page::{Ask, CursorExpired, End, Item, MAX_SHOWN_REASONS, Page, Reason};
use super::place::{Order, Place};
use super::post::{Content, NewPost, Post, PostEdit, PostId, UserId, digest, is_visible};
use super::scope::{Recent, Scope, recent};
use crate::{Map, Millis};

/// What became of a request to publish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Published {
    /// It is there now.
    New(Post),
    /// It, or this author's repost of the same root, was there already.
    Same(Post),
    /// Another post has this name, or had it and is still shown again by somebody: whoever takes its name does not take its
    /// reposts.
    Mismatch,
    /// There is no such post to repost, or not everybody sees it.
    UnknownRoot,
}

/// What became of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edited {
    /// So it is now.
    Done(Post),
    /// There is no such post.
    Unknown,
    /// A repost has no body.
    NoBody,
}

/// What became of a wish to follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Followed {
    /// Since then.
    Since(Millis),
    /// Nobody follows himself.
    Oneself,
    /// So many are followed already.
    Limit,
}

/// Users, posts, follows and blocks.
#[derive(Debug, Clone)]
pub struct Community {
    max_followees: usize,
    posts: Map<PostId, Post>,
    by_author: Map<UserId, BTreeSet<Place>>,
    /// By root: who shows it again, by which post.
    reposts: Map<PostId, BTreeMap<UserId, PostId>>,
    follows: Map<UserId, BTreeMap<UserId, Millis>>,
    blocks: BTreeSet<(UserId, UserId)>,
}

impl Community {
    /// Nobody yet; each may follow `max_followees`.
    #[must_use]
    pub fn new(max_followees: usize) -> Self {
        Self {
            max_followees,
            posts: Map::default(),
            by_author: Map::default(),
            reposts: Map::default(),
            follows: Map::default(),
            blocks: BTreeSet::new(),
        }
    }

    /// Publishes a post. A repeat, known by its content, answers what is there, also after an edit; so does a second repost
    /// of one root by one author.
    pub fn publish(&mut self, now: Millis, new: &NewPost) -> Published {
        let digest = digest(new);
        if let Some(there) = self.posts.get(&new.id) {
            return if there.digest == digest { Published::Same(there.clone()) } else { Published::Mismatch };
        }
        if self.reposts.get(&new.id).is_some_and(|by| !by.is_empty()) {
            return Published::Mismatch;
        }
        let content = match &new.content {
            Content::Body(_) => new.content.clone(),
            Content::Repost(of) => match self.root_of(of) {
                Some(root) => Content::Repost(root),
                None => return Published::UnknownRoot,
            },
        };
        if let Content::Repost(root) = &content {
            if let Some(first) = self.reposts.get(root).and_then(|by| by.get(&new.author)) {
                return Published::Same(self.posts[first].clone());
            }
            self.reposts.entry(root.clone()).or_default().insert(new.author.clone(), new.id.clone());
        }
        let published_at = new.published_at.map_or(now, |at| at.min(now));
        let post = Post {
            id: new.id.clone(),
            author: new.author.clone(),
            content,
            published_at,
            edited_at: None,
            visibility: new.visibility,
            version: 1,
            digest,
        };
        self.by_author.entry(post.author.clone()).or_default().insert(place_of(&post));
        self.posts.insert(post.id.clone(), post.clone());
        Published::New(post)
    }

    /// The root of a post that may be reposted: both are there and public.
    fn root_of(&self, of: &PostId) -> Option<PostId> {
        let public = |id: &PostId| self.posts.get(id).filter(|post| post.visibility == super::Visibility::Public);
        let root = public(of)?.root().clone();
        public(&root).map(|_| root)
    }

    /// A post as it stands.
    #[must_use]
    pub fn get(&self, id: &PostId) -> Option<&Post> {
        self.posts.get(id)
    }

    /// Changes a post. A change that changes nothing leaves its version.
    pub fn edit(&mut self, now: Millis, id: &PostId, edit: &PostEdit) -> Edited {
        let Some(post) = self.posts.get_mut(id) else { return Edited::Unknown };
        let mut changed = post.clone();
        if let Some(body) = &edit.body {
            if matches!(post.content, Content::Repost(_)) {
                return Edited::NoBody;
            }
            changed.content = Content::Body(body.clone());
        }
        changed.visibility = edit.visibility.unwrap_or(post.visibility);
        if changed != *post {
            changed.version += 1;
            changed.edited_at = Some(now);
            *post = changed;
        }
        Edited::Done(post.clone())
    }

    /// Deletes a post; whether it was there. Reposts of it stay, and show nothing.
    pub fn delete(&mut self, id: &PostId) -> bool {
        let Some(post) = self.posts.remove(id) else { return false };
        if let Some(places) = self.by_author.get_mut(&post.author) {
            places.remove(&place_of(&post));
        }
        if let Content::Repost(root) = &post.content
            && let Some(by) = self.reposts.get_mut(root)
        {
            by.remove(&post.author);
        }
        true
    }

    /// `user` follows `other` from now on; a repeat changes nothing.
    pub fn follow(&mut self, now: Millis, user: &UserId, other: &UserId) -> Followed {
        if user == other {
            return Followed::Oneself;
        }
        let follows = self.follows.entry(user.clone()).or_default();
        if let Some(since) = follows.get(other) {
            return Followed::Since(*since);
        }
        if follows.len() >= self.max_followees {
            return Followed::Limit;
        }
        follows.insert(other.clone(), now);
        Followed::Since(now)
    }

    /// `user` follows `other` no more.
    pub fn unfollow(&mut self, user: &UserId, other: &UserId) {
        if let Some(follows) = self.follows.get_mut(user) {
            follows.remove(other);
        }
    }

    /// Whom `user` follows, and since when.
    pub fn follows(&self, user: &UserId) -> impl Iterator<Item = (&UserId, Millis)> {
        self.follows.get(user).into_iter().flatten().map(|(other, since)| (other, *since))
    }

    /// Neither sees the other's posts and reposts from now on; whether it is possible: nobody blocks himself.
    pub fn block(&mut self, user: &UserId, other: &UserId) -> bool {
        user != other && {
            self.blocks.insert((user.clone(), other.clone()));
            true
        }
    }

    /// `user` blocks `other` no more.
    pub fn unblock(&mut self, user: &UserId, other: &UserId) {
        self.blocks.remove(&(user.clone(), other.clone()));
    }

    /// Whether one of the two blocks the other.
    #[must_use]
    pub fn is_blocked(&self, one: &UserId, other: &UserId) -> bool {
        let pair = |a: &UserId, b: &UserId| self.blocks.contains(&(a.clone(), b.clone()));
        pair(one, other) || pair(other, one)
    }

    /// Nothing is left of a user: posts, follows and blocks both ways.
    pub fn delete_user(&mut self, user: &UserId) {
        let posts: Vec<PostId> = self.places(user).map(|place| place.post.clone()).collect();
        posts.iter().for_each(|post| {
            self.delete(post);
        });
        self.by_author.remove(user);
        self.follows.remove(user);
        self.follows.values_mut().for_each(|follows| {
            follows.remove(user);
        });
        self.blocks.retain(|(one, other)| one != user && other != user);
    }

    /// Where an author's posts and reposts stand, the oldest first.
    pub fn places(&self, author: &UserId) -> impl DoubleEndedIterator<Item = &Place> {
        self.by_author.get(author).into_iter().flatten()
    }

    /// Those whose posts are in a feed: whom the viewer follows, and himself.
    #[must_use]
    pub fn sources(&self, viewer: &UserId) -> BTreeSet<UserId> {
        self.follows(viewer).map(|(other, _)| other.clone()).chain([viewer.clone()]).collect()
    }

    /// A post, if the viewer sees it.
    #[must_use]
    pub fn seen(&self, viewer: &UserId, id: &PostId) -> Option<&Post> {
        let sees =
            |post: &&Post| is_visible(viewer, &post.author, post.visibility) && !self.is_blocked(viewer, &post.author);
        self.posts.get(id).filter(sees)
    }

    /// Every reason that `sources` give for a root, as the viewer sees them.
    #[must_use]
    pub fn reasons(&self, viewer: &UserId, sources: &BTreeSet<UserId>, root: &Post) -> Vec<Reason> {
        let reposts = self.reposts.get(&root.id).into_iter().flat_map(BTreeMap::values);
        let posts = reposts.filter_map(|id| self.seen(viewer, id)).chain([root]);
        let reason = |post: &Post| Reason { user: post.author.clone(), at: post.published_at, post: post.id.clone() };
        posts.filter(|post| sources.contains(&post.author)).map(reason).collect()
    }

    /// To whom a walk is limited that begins now.
    fn recent(&self, now: Millis, viewer: &UserId, scope: &Scope) -> Option<Recent> {
        let newest = |user: &UserId| self.places(user).next_back().map(|place| place.at);
        let heads = self.follows(viewer).filter_map(|(user, _)| Some((user, newest(user)?)));
        let (users, heads): (Vec<&UserId>, Vec<Millis>) = heads.filter(|(_, at)| *at >= scope.oldest(now)).unzip();
        let chosen = recent(&heads, scope.limit_to_recent?, |at| users[at])?;
        Some(Recent::of(chosen.into_iter().map(|at| users[at])))
    }

    /// A page of a feed that shows all it can.
    ///
    /// # Errors
    /// [`CursorExpired`].
    pub fn page(&self, now: Millis, ask: &Ask) -> Result<Page, CursorExpired> {
        self.page_of(now, ask, &Scope::default())
    }

    /// A page of a feed.
    ///
    /// # Errors
    /// [`CursorExpired`].
    pub fn page_of(&self, now: Millis, ask: &Ask, scope: &Scope) -> Result<Page, CursorExpired> {
        let (range, begin) = ask.range_from(now, scope.oldest(now))?;
        let limited = match &ask.after {
            Some(cursor) => cursor.recent.clone(),
            None => self.recent(now, &ask.viewer, scope),
        };
        let mut sources = self.sources(&ask.viewer);
        sources.retain(|user| match (*user == ask.viewer, &limited) {
            (true, _) => scope.own_posts,
            (false, Some(limited)) => limited.has(user),
            (false, None) => true,
        });
        let mut items = Vec::new();
        let mut newest: Option<Place> = None;
        for root in self.posts.values().filter(|post| matches!(post.content, Content::Body(_))) {
            let Some(root) = self.seen(&ask.viewer, &root.id) else { continue };
            let mut reasons = self.reasons(&ask.viewer, &sources, root);
            reasons.retain(|reason| range.has(&reason.place()));
            reasons.sort_by_key(|reason| std::cmp::Reverse(reason.place()));
            let Some(place) = reasons.first().map(Reason::place) else { continue };
            newest = newest.max(Some(place.clone()));
            let is_left = match ask.direction() {
                Order::Newest => begin.is_above(&place),
                Order::Oldest => !begin.is_above(&place),
            };
            if is_left {
                let reason_count = reasons.len();
                reasons.truncate(MAX_SHOWN_REASONS);
                items.push((place, Item { root: root.clone(), reasons, reason_count }));
            }
        }
        match ask.direction() {
            Order::Newest => items.sort_by(|a, b| b.0.cmp(&a.0)),
            Order::Oldest => items.sort_by(|a, b| a.0.cmp(&b.0)),
        }
        let more = items.len() > ask.limit;
        items.truncate(ask.limit);
        let next = match (items.last(), newest) {
            (Some((last, _)), Some(newest)) if more => Ok(ask.cursor(&range, &newest, last.clone(), limited)),
            _ => {
                let beyond = |place: &Place| match ask.direction() {
                    Order::Newest => place.at < range.low,
                    Order::Oldest => !range.top.is_above(place),
                };
                let cut = range.is_empty()
                    || limited.is_some()
                    || sources.iter().any(|author| self.places(author).any(beyond));
                Err(if cut { End::Window } else { End::Complete })
            }
        };
        Ok(Page { items: items.into_iter().map(|(_, item)| item).collect(), next })
    }
}

/// Where a post stands in its author's set.
fn place_of(post: &Post) -> Place {
    Place { at: post.published_at, post: post.id.clone() }
}
