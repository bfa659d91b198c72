//! In-process keyed locks: what is compared (`subjects`), what is measured (`measure`), and how it
//! is shown (`report`, `plot`).

pub mod measure;
pub mod plot;
pub mod report;
pub mod subjects;
