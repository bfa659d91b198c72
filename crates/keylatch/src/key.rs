//! What can be locked.

use keylatch_table::{Field, Resource, ResourceError};

/// What can stand where a key is asked for: text for a plain key, or a [`Resource`].
pub trait IntoKey {
    /// The resource, if it is one.
    fn into_key(self) -> Result<Resource, ResourceError>;
}

impl IntoKey for &str {
    fn into_key(self) -> Result<Resource, ResourceError> {
        Resource::plain(self)
    }
}

impl IntoKey for String {
    fn into_key(self) -> Result<Resource, ResourceError> {
        Resource::plain(&self)
    }
}

impl IntoKey for &String {
    fn into_key(self) -> Result<Resource, ResourceError> {
        Resource::plain(self)
    }
}

impl IntoKey for Resource {
    fn into_key(self) -> Result<Resource, ResourceError> {
        Ok(self)
    }
}

impl IntoKey for &Resource {
    fn into_key(self) -> Result<Resource, ResourceError> {
        Ok(self.clone())
    }
}

impl IntoKey for Result<Resource, ResourceError> {
    fn into_key(self) -> Result<Resource, ResourceError> {
        self
    }
}

/// A composite key: a name and up to 16 fields, [`keylatch_table::ANY`] among them. A mistake in it
/// is reported when the lock is asked for.
pub fn resource<'a>(
    name: &str,
    fields: impl IntoIterator<Item = Field<'a>>,
) -> Result<Resource, ResourceError> {
    Resource::new(name, &fields.into_iter().collect::<Vec<_>>())
}
