//! Repeatable choices: the same seed makes the same decisions on every machine and in every version.

/// SplitMix64 (Steele, Lea, Flood 2014): small, fast, and defined by its code, so a seed means the same for ever.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The stream of item `index` under `seed`: independent of the order in which items are handled.
    #[must_use]
    pub fn of(seed: u64, index: u64) -> Self {
        let mut random = Self(seed ^ index.wrapping_mul(0xA076_1D64_78BD_642F));
        random.next();
        random
    }

    /// The stream of a named item under `seed`.
    #[must_use]
    pub fn named(seed: u64, name: &str) -> Self {
        // FNV-1a: enough to tell names apart, and fixed for ever.
        let hash =
            name.bytes().fold(0xCBF2_9CE4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01B3));
        Self::of(seed, hash)
    }

    /// The next 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number from 0 up to (not with) `end`; 0 when `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        // The high half of a 128-bit product: no division, and the bias is below 2^-40 for the sizes used here.
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// A number in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }
}

/// Ranks drawn by Zipf's law with exponent 1: the n-th, counted from 1, comes 1/n as often as the first.
#[derive(Debug, Clone)]
pub struct Zipf {
    /// For each rank the sum of the weights up to it.
    sums: Vec<f64>,
}

impl Zipf {
    /// Of so many ranks; at least one.
    #[must_use]
    pub fn new(ranks: usize) -> Self {
        let weights = (1..=ranks.max(1)).map(|rank| 1.0 / rank as f64);
        let sum = |sum: &mut f64, weight: f64| {
            *sum += weight;
            Some(*sum)
        };
        Self { sums: weights.scan(0.0, sum).collect() }
    }

    /// A rank, counted from 0.
    pub fn draw(&self, random: &mut Random) -> usize {
        let last = self.sums.len() - 1;
        let at = random.unit() * self.sums[last];
        self.sums.partition_point(|sum| *sum <= at).min(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rank_is_drawn_as_often_as_zipfs_law_says() {
        let (zipf, mut random) = (Zipf::new(100), Random::of(3, 1));
        let mut drawn = [0_u32; 100];
        (0..100_000).for_each(|_| drawn[zipf.draw(&mut random)] += 1);
        // 1 of 5.187, the sum of the first hundred weights.
        assert!((18_500..20_100).contains(&drawn[0]), "{}", drawn[0]);
        assert!((9_000..10_300).contains(&drawn[1]) && drawn[99] > 100, "{drawn:?}");
        assert_eq!(Zipf::new(0).draw(&mut random), 0);
    }

    #[test]
    fn a_seed_means_the_same_for_ever() {
        let mut r = Random::of(1, 0);
        let first = [r.below(1_000), r.below(1_000), r.below(1_000)];
        let mut again = Random::of(1, 0);
        assert_eq!(first, [again.below(1_000), again.below(1_000), again.below(1_000)]);
        assert_ne!(Random::of(1, 1).next(), Random::of(1, 2).next());
        assert_ne!(Random::named(1, "a").next(), Random::named(2, "a").next());
    }

    #[test]
    fn shares_come_out() {
        let hits = (0..10_000).filter(|i| Random::of(7, *i).chance(0.6)).count();
        assert!((5_800..6_200).contains(&hits), "{hits}");
        assert!((0..1_000).all(|i| Random::of(7, i).below(20) < 20));
        assert_eq!(Random::of(7, 7).below(0), 0);
    }
}
