//! Claims. One is done in parts, each a script of its own, so that no script works for long; and where a process has many
//! queues, those that had nothing at the last look are looked at together, in one command instead of one each.

use std::time::Instant;

use redis::Value;
use tidegate_backend::{Error, ErrorKind, Handout, Result, Want};
use tidegate_core::Millis;
use tidegate_core::queue::model::lapsed_error;
use tidegate_core::queue::rules::newest_of;
use tidegate_core::queue::{Claimed, MAX_BATCH, MAX_BATCH_BYTES};

use super::Inner;
use super::wire::{self, decimal};
use crate::connect::Call;
use crate::reply;
use crate::scripts;

/// Tasks that one script leases: a millisecond's work.
const PIECE: usize = 256;
/// Queues in one look.
const LOOK: usize = 256;
/// With more queues than these, quiet ones are looked at: a look that finds something costs a second round trip.
const MANY: usize = 8;

/// How far one want is.
struct Part<'a> {
    want: &'a Want,
    max: usize,
    tasks: Vec<Claimed>,
    next_at: Option<Millis>,
    failed: Option<Error>,
    /// What the next round does about it.
    next: Next,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Look,
    Claim,
    Nothing,
}

impl Part<'_> {
    /// How many the next script is asked for.
    fn piece(&self) -> usize {
        (self.max - self.tasks.len()).min(PIECE)
    }

    fn call(&self, inner: &Inner, attempts: u32) -> Call {
        let piece = self.piece();
        // A share of the newest is the end of a claim.
        let is_last = self.tasks.len() + piece == self.max;
        let newest = if is_last { newest_of(self.max).min(piece) } else { 0 };
        let bytes: usize = self.tasks.iter().map(|task| task.payload.len()).sum();
        let number = |n: usize| n.to_string().into_bytes();
        let arguments = vec![
            number(piece),
            number(newest),
            decimal(self.want.lease_ms),
            attempts.to_string().into_bytes(),
            number(MAX_BATCH_BYTES),
            lapsed_error(attempts).into_bytes(),
            number(self.max),
            number(self.tasks.len()),
            number(bytes),
        ];
        Call::script(&scripts::QUEUE_CLAIM, inner.keys.queue(&self.want.queue).to_vec(), arguments)
    }

    /// Takes what a claim answered; whether there may be more for it.
    fn take(&mut self, inner: &Inner, answer: &Value) -> Result<bool> {
        let [_, number, head, till] = reply::parts::<4>(answer)?;
        let until = wire::score(till)?;
        let tasks = wire::claimed(&reply::list(answer)?[4..], until)?;
        self.next_at = reply::score(head)?.map(wire::instant);
        inner.known.looked(&self.want.queue, reply::bytes(number)?, self.next_at);
        // One whose lease ran out ends the claim before it is full.
        let more = tasks.len() == self.piece() && self.tasks.len() + tasks.len() < self.max;
        self.tasks.extend(tasks);
        Ok(more)
    }
}

/// One for each want, in order.
///
/// # Errors
/// Nothing is known of any of them, and why. What was claimed is handed out, whatever else is wrong.
pub(super) async fn claim<'w>(inner: &Inner, wants: &'w [Want]) -> Result<Vec<Handout>> {
    let now = inner.clock.now();
    let part = |want: &'w Want| {
        let Want { queue, max, .. } = want;
        let looks = *max == 0 || (wants.len() > MANY && inner.known.is_quiet(queue, now));
        let next = if looks { Next::Look } else { Next::Claim };
        Part { want, max: (*max).min(MAX_BATCH), tasks: Vec::new(), next_at: None, failed: None, next }
    };
    let mut parts: Vec<Part<'_>> = wants.iter().map(part).collect();
    while parts.iter().any(|part| part.next != Next::Nothing) {
        round(inner, &mut parts).await;
    }
    if parts.iter().all(|part| part.failed.is_some() && part.tasks.is_empty())
        && let Some(e) = parts.iter_mut().find_map(|part| part.failed.take())
    {
        return Err(e);
    }
    let told = |e: Error| e.advice().map_or_else(|| e.to_string(), str::to_owned);
    let handout = |part: Part<'_>| Handout { tasks: part.tasks, next_at: part.next_at, failed: part.failed.map(told) };
    Ok(parts.into_iter().map(handout).collect())
}

/// Looks and claims, all in one round trip.
async fn round(inner: &Inner, parts: &mut [Part<'_>]) {
    let of = |next| parts.iter().enumerate().filter(move |(_, part)| part.next == next).map(|(at, _)| at);
    let (claims, looks): (Vec<usize>, Vec<usize>) = (of(Next::Claim).collect(), of(Next::Look).collect());
    // Queues that lie on several servers are not named in one command.
    let together: Vec<&[usize]> = looks.chunks(if inner.connector.is_cluster() { 1 } else { LOOK }).collect();
    let attempts = inner.options.max_attempts;
    let keys = |at: &usize| {
        let [waiting, leased, _, _, mark] = inner.keys.queue(&parts[*at].want.queue);
        [waiting, leased, mark]
    };
    let look = |some: &&[usize]| Call::script(&scripts::QUEUE_LOOK, some.iter().flat_map(keys).collect(), Vec::new());
    let claim = |at: &usize| parts[*at].call(inner, attempts);
    let calls: Vec<Call> = claims.iter().map(claim).chain(together.iter().map(look)).collect();
    let asked = Instant::now();
    let mut answers = inner.connector.run(calls).await.into_iter();
    let first = answers.as_slice().first().and_then(|answer| answer.as_ref().ok());
    if let Some(Ok([stamp])) = first.map(reply::parts::<1>) {
        // What is no number is found below.
        let _ = inner.heard(asked, stamp);
    }
    for (at, answer) in claims.into_iter().zip(&mut answers) {
        let part = &mut parts[at];
        part.next = match answer.and_then(|answer| part.take(inner, &answer)) {
            Ok(true) => Next::Claim,
            Ok(false) => Next::Nothing,
            Err(e) => part.give_up(e),
        };
    }
    for (some, answer) in together.into_iter().zip(answers) {
        match answer.and_then(|answer| seen(inner, parts, some, &answer)) {
            Ok(()) => {}
            // One of them is broken: each is asked by itself.
            Err(e) if e.kind() == ErrorKind::Corrupt && some.len() > 1 => {
                some.iter().for_each(|at| parts[*at].next = Next::Claim);
            }
            Err(e) => some.iter().for_each(|at| parts[*at].next = parts[*at].give_up(same(&e))),
        }
    }
}

fn same(e: &Error) -> Error {
    Error::new(e.kind(), e.to_string()).advise(e.advice())
}

impl Part<'_> {
    fn give_up(&mut self, e: Error) -> Next {
        self.failed = Some(e);
        Next::Nothing
    }
}

/// What a look at `some` of them found: what is due is claimed next.
fn seen(inner: &Inner, parts: &mut [Part<'_>], some: &[usize], answer: &Value) -> Result<()> {
    let [stamp, ..] = reply::parts::<1>(answer)?;
    let now = Millis(reply::integer(stamp)? / 1_000);
    let found = &reply::list(answer)?[1..];
    if found.len() != some.len() * 2 {
        return Err(reply::strange(answer));
    }
    for (at, one) in some.iter().zip(found.chunks_exact(2)) {
        let part = &mut parts[*at];
        part.next_at = reply::score(&one[1])?.map(wire::instant);
        inner.known.looked(&part.want.queue, reply::bytes(&one[0])?, part.next_at);
        let is_due = part.max > 0 && part.next_at.is_some_and(|next| next <= now);
        part.next = if is_due { Next::Claim } else { Next::Nothing };
    }
    Ok(())
}
