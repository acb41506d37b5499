//! Two instances on one ledger, as two nodes would be: what they tell each other, what they find when they are not told,
//! and how they go on while the index or the link between them is away.

mod fakes;
mod gate;
mod index;
mod link;
mod pair;
