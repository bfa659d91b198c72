//! What tests Keylatch from outside: a naive model of the lock table, a generator of random command
//! sequences, and the comparison of the two with any table that claims to follow the same rules.
//! Nothing here is published, and only tests of other crates depend on it.

pub mod check;
pub mod compare;
pub mod fuzz;
pub mod generate;
pub mod model;
pub mod random;
