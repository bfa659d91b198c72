//! What a run is mostly about.

use keylatch_table::{Mode, Settings};

/// A kind of run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Some of everything.
    Mixed,
    /// Composite keys with many wildcards.
    Wildcards,
    /// Owners that wait for each other.
    Deadlocks,
    /// One key that everybody wants.
    HotKey,
    /// O and S locks that are promoted.
    Optimistic,
    /// Keys with values, and several locks at once.
    Keys,
    /// Connections that come and go.
    Detached,
    /// Small bounds that change.
    Bounds,
    /// Tasks and claims.
    Tasks,
}

/// What a command is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Acquire,
    Repeat,
    Each,
    Release,
    Renew,
    Promote,
    Cancel,
    Detach,
    Revoke,
    Keyed,
    Task,
    RepeatTask,
    Tick,
    Settings,
    /// Something that is refused, or that is rare.
    Odd,
}

/// What the commands of a run are made of.
#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) settings: Settings,
    pub(super) names: &'static [&'static str],
    /// How many of the field values are used.
    pub(super) fields: usize,
    pub(super) arities: &'static [usize],
    pub(super) wildcard_percent: u64,
    pub(super) modes: &'static [(u64, Mode)],
    pub(super) owners: u64,
    pub(super) explicit_percent: u64,
    pub(super) detect_percent: u64,
    pub(super) several_percent: u64,
    pub(super) wait_percent: u64,
    pub(super) value_percent: u64,
    /// Beyond so many live requests most commands release.
    pub(super) crowd: usize,
    pub(super) kinds: &'static [(u64, Kind)],
}

const ALL_MODES: &[(u64, Mode)] =
    &[(4, Mode::Shared), (4, Mode::Cumulative), (3, Mode::Exclusive), (2, Mode::Optimistic)];

/// Small enough that a wrong length is short to print, large enough not to be in the way.
fn base_settings() -> Settings {
    Settings {
        id_bytes: 40,
        name_bytes: 8,
        field_bytes: 8,
        owner_bytes: 8,
        meta_bytes: 16,
        resources: 4,
        wait_ms: 1_000_000,
        lease_ms: 2_000_000,
        ended_ms: 5_000,
        task_key_bytes: 8,
        task_body_bytes: 32,
        task_attempts: 3,
        ..Settings::default()
    }
}

fn mixed(kinds: &'static [(u64, Kind)]) -> World {
    World {
        settings: base_settings(),
        names: &["a", "b", "ccc"],
        fields: 7,
        arities: &[0, 1, 2, 2, 3],
        wildcard_percent: 25,
        modes: ALL_MODES,
        owners: 4,
        explicit_percent: 75,
        detect_percent: 30,
        several_percent: 15,
        wait_percent: 65,
        value_percent: 5,
        crowd: 30,
        kinds,
    }
}

impl Profile {
    /// All of them.
    pub const ALL: [Profile; 9] = [
        Profile::Mixed,
        Profile::Wildcards,
        Profile::Deadlocks,
        Profile::HotKey,
        Profile::Optimistic,
        Profile::Keys,
        Profile::Detached,
        Profile::Bounds,
        Profile::Tasks,
    ];

    /// The settings that a run of this profile begins with.
    pub fn settings(self) -> Settings {
        self.world().settings
    }

    pub(super) fn world(self) -> World {
        let mixed = mixed(self.kinds());
        match self {
            Profile::Mixed | Profile::Bounds | Profile::Tasks => mixed,
            Profile::Wildcards => World {
                names: &["a", "b"],
                fields: 3,
                arities: &[1, 2, 2, 3, 3, 5],
                wildcard_percent: 40,
                several_percent: 25,
                crowd: 40,
                ..mixed
            },
            Profile::Deadlocks => World {
                names: &["a", "b", "c", "d"],
                arities: &[0, 0, 0, 1],
                fields: 2,
                modes: &[(2, Mode::Shared), (6, Mode::Cumulative), (3, Mode::Exclusive)],
                explicit_percent: 100,
                // Cycles that come up late need an E that takes no part in detection.
                detect_percent: 70,
                several_percent: 40,
                wait_percent: 90,
                crowd: 25,
                ..mixed
            },
            Profile::HotKey => World {
                names: &["a"],
                arities: &[0, 0, 0, 0, 0, 0, 1],
                fields: 1,
                several_percent: 0,
                wait_percent: 90,
                crowd: 60,
                ..mixed
            },
            Profile::Optimistic => World {
                names: &["a", "b"],
                fields: 2,
                arities: &[0, 1, 2],
                modes: &[
                    (3, Mode::Shared),
                    (1, Mode::Cumulative),
                    (1, Mode::Exclusive),
                    (6, Mode::Optimistic),
                ],
                several_percent: 25,
                crowd: 25,
                ..mixed
            },
            Profile::Keys => World {
                names: &["a", "b", "c", "d"],
                arities: &[0],
                fields: 0,
                modes: &[(1, Mode::Shared), (1, Mode::Cumulative), (8, Mode::Exclusive)],
                several_percent: 5,
                wait_percent: 30,
                value_percent: 70,
                crowd: 12,
                ..mixed
            },
            Profile::Detached => World {
                names: &["a", "b"],
                arities: &[0, 1],
                fields: 2,
                wait_percent: 90,
                crowd: 25,
                ..mixed
            },
        }
    }

    /// How often each kind of command comes.
    #[rustfmt::skip] // one line a pair would hide the proportions
    fn kinds(self) -> &'static [(u64, Kind)] {
        use Kind::*;
        match self {
            Profile::Mixed => &[
                (40, Acquire), (8, Repeat), (2, Each), (18, Release), (5, Renew),
                (5, Promote), (3, Cancel), (3, Detach), (2, Revoke), (3, Keyed), (10, Task),
                (2, RepeatTask), (10, Tick), (2, Settings), (3, Odd),
            ],
            Profile::Wildcards => &[
                (50, Acquire), (4, Repeat), (1, Each), (12, Release), (2, Renew),
                (4, Promote), (2, Cancel), (1, Detach), (2, Revoke), (8, Tick), (1, Odd),
            ],
            Profile::Deadlocks => &[
                (50, Acquire), (4, Repeat), (2, Each), (18, Release), (2, Renew),
                (8, Promote), (3, Cancel), (1, Detach), (2, Revoke), (10, Tick),
            ],
            Profile::HotKey => &[
                (50, Acquire), (8, Repeat), (1, Each), (12, Release), (3, Renew),
                (3, Promote), (4, Cancel), (3, Detach), (1, Revoke), (1, Keyed), (8, Tick),
            ],
            Profile::Optimistic => &[
                (40, Acquire), (10, Repeat), (2, Each), (15, Release), (3, Renew),
                (22, Promote), (1, Cancel), (3, Detach), (2, Revoke), (8, Tick), (1, Odd),
            ],
            Profile::Keys => &[
                (30, Acquire), (5, Repeat), (12, Each), (8, Release), (5, Renew),
                (1, Promote), (2, Detach), (2, Revoke), (30, Keyed), (8, Tick), (2, Odd),
            ],
            Profile::Detached => &[
                (35, Acquire), (25, Repeat), (16, Release), (6, Renew), (2, Promote),
                (4, Cancel), (14, Detach), (2, Keyed), (14, Task), (6, RepeatTask),
                (10, Tick),
            ],
            Profile::Bounds => &[
                (40, Acquire), (6, Repeat), (4, Each), (14, Release), (5, Renew),
                (3, Promote), (3, Cancel), (2, Detach), (2, Revoke), (3, Keyed), (20, Task),
                (3, RepeatTask), (8, Tick), (8, Settings), (10, Odd),
            ],
            Profile::Tasks => &[
                (4, Acquire), (2, Release), (6, Detach), (80, Task), (15, RepeatTask),
                (12, Tick), (3, Settings), (1, Odd),
            ],
        }
    }
}
