//! Servers of the kept state that nobody names any more: they left, or were taken out of the configuration, while nobody watched.

use std::collections::BTreeSet;

use tidegate_backend::watch::Round;
use tidegate_core::watch::Answer;

/// Servers of the kept state that no look has named yet.
#[derive(Debug)]
pub(super) struct Unnamed {
    servers: BTreeSet<String>,
    /// The sources that have told which servers they have, by their place.
    heard: BTreeSet<usize>,
}

impl Unnamed {
    pub(super) fn of<'a>(servers: impl Iterator<Item = &'a str>) -> Self {
        Self { servers: servers.map(str::to_owned).collect(), heard: BTreeSet::new() }
    }

    /// Takes in a look; those that are not watched any more, once every source has told which servers it has.
    pub(super) fn gone(&mut self, rounds: &[Round]) -> BTreeSet<String> {
        if self.servers.is_empty() {
            return BTreeSet::new();
        }
        for (place, round) in rounds.iter().enumerate() {
            for sample in &round.samples {
                self.servers.remove(&sample.address);
            }
            // While none answers, nobody tells which there are: a Cluster or a set may have more than were named.
            if round.samples.iter().any(|sample| sample.answer().is_some_and(knows_the_others)) {
                self.heard.insert(place);
            }
        }
        let is_whole = !rounds.is_empty() && self.heard.len() == rounds.len();
        if is_whole { std::mem::take(&mut self.servers) } else { BTreeSet::new() }
    }
}

/// A node that loads its data answers, and does not tell of the others yet.
fn knows_the_others(answer: &Answer) -> bool {
    answer.info.is_on("loading") != Some(true)
}

#[cfg(test)]
mod tests {
    use tidegate_core::Millis;
    use tidegate_core::watch::{Info, Reply, Sample, Silence};

    use super::*;

    fn sample(address: &str, reply: Reply) -> Sample {
        Sample { address: address.to_owned(), at: Millis(0), reply, is_late: false, tls: false }
    }

    fn silent(address: &str) -> Sample {
        sample(address, Reply::Silence { kind: Silence::NoConnection, why: String::new(), waited_ms: 0.0 })
    }

    fn answers(address: &str, text: &str) -> Sample {
        sample(address, Reply::Answer(Box::new(Answer { info: Info::parse(text), ..Answer::default() })))
    }

    #[test]
    fn only_what_every_source_does_not_name_is_gone() {
        let round = |samples: Vec<Sample>| Round { samples, gone: Vec::new() };
        let mut unnamed = Unnamed::of(["a:1", "b:1", "c:1", "d:1"].into_iter());
        // The second source tells nothing, and the first does not tell of all.
        assert!(unnamed.gone(&[round(vec![answers("a:1", "loading:1\r\n")]), round(vec![silent("s:1")])]).is_empty());
        assert!(unnamed.gone(&[round(vec![answers("a:1", ""), silent("b:1")]), round(vec![silent("s:1")])]).is_empty());
        assert!(unnamed.gone(&[]).is_empty());
        let gone = unnamed.gone(&[round(vec![silent("a:1")]), round(vec![answers("c:1", "")])]);
        assert_eq!(gone, BTreeSet::from(["d:1".to_owned()]));
        assert!(unnamed.gone(&[round(vec![answers("e:1", "")]), round(vec![answers("c:1", "")])]).is_empty());
    }
}
