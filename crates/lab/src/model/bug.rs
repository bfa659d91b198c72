//! Mistakes that can be planted in the model on purpose. Each is one that a system like this one
//! really made; a comparison that does not notice them is worth nothing.

/// A mistake that a [`super::Model`] can be made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Of the holders that overlap a resource only the first is looked at.
    QueueHeadsOnly,
    /// When something ends, only the first free waiter is granted.
    WakesOneOnly,
    /// A request that goes with the holders does not look at those who queue before it.
    PassesTheQueue,
    /// After a promotion the waiters are not looked at again.
    PromoteForgetsWaiters,
    /// Optimistic holders keep what they hold when another one is promoted.
    SupersedesNobody,
    /// A renewal sets the lease instead of only extending it.
    RenewalShortens,
    /// Repeating a request that waits sends it to the tail.
    RepeatLosesItsPlace,
    /// A grant to a waiter whose connection is gone has the whole lease.
    DetachedGetsWholeLease,
    /// A cycle that comes up by itself is not broken.
    LateCyclesStay,
    /// A put back that lapsed before is refused.
    LapsedClaimsAreStale,
}

impl Bug {
    /// All of them.
    pub const ALL: [Bug; 10] = [
        Bug::QueueHeadsOnly,
        Bug::WakesOneOnly,
        Bug::PassesTheQueue,
        Bug::PromoteForgetsWaiters,
        Bug::SupersedesNobody,
        Bug::RenewalShortens,
        Bug::RepeatLosesItsPlace,
        Bug::DetachedGetsWholeLease,
        Bug::LateCyclesStay,
        Bug::LapsedClaimsAreStale,
    ];
}
