//! Who a certificate is for, as one name: the common name of its subject; if there is none, the
//! first URI, then the first DNS name of its alternative names.
//!
//! Asked only for certificates that have been verified, so an authority of ours has signed every byte
//! here. Certificates are taken apart by `webpki`, as in verifying; only the inside of the subject,
//! which it leaves alone, is read here. What is ambiguous is no name: somebody else may read it
//! differently, and this decides who may do what.

use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

/// The name, if there is one without doubt.
pub(crate) fn name(certificate: &CertificateDer<'_>) -> Option<String> {
    let certificate = EndEntityCert::try_from(certificate).ok()?;
    let name = match common_name(certificate.subject()) {
        Ok(Some(name)) => name,
        Ok(None) => certificate
            .valid_uri_names()
            .next()
            .or_else(|| certificate.valid_dns_names().next())?
            .into(),
        Err(Doubt) => return None,
    };
    let fine = !name.is_empty() && !name.chars().any(char::is_control);
    fine.then_some(name)
}

/// There is no telling what the name is.
#[derive(Debug, PartialEq, Eq)]
struct Doubt;

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;
/// UTF-8, or ASCII by another name (`PrintableString`, `IA5String`). The other kinds of text went out
/// of use with the last century.
const TEXTS: [u8; 3] = [0x0c, 0x13, 0x16];
/// 2.5.4.3
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];

/// The one common name in a subject: a sequence of sets of (kind, text).
fn common_name(mut subject: &[u8]) -> Result<Option<String>, Doubt> {
    let mut found = None;
    while !subject.is_empty() {
        let mut set = value(&mut subject, &[SET])?;
        while !set.is_empty() {
            let mut attribute = value(&mut set, &[SEQUENCE])?;
            if value(&mut attribute, &[OBJECT_IDENTIFIER])? != COMMON_NAME {
                continue;
            }
            let text = value(&mut attribute, &TEXTS)?;
            let text = std::str::from_utf8(text).map_err(|_| Doubt)?;
            if found.replace(text.to_owned()).is_some() || !attribute.is_empty() {
                return Err(Doubt);
            }
        }
    }
    Ok(found)
}

/// Takes one value with one of these tags off the front (DER, lengths up to 65,535).
fn value<'a>(from: &mut &'a [u8], tags: &[u8]) -> Result<&'a [u8], Doubt> {
    let (tag, after) = from.split_first().ok_or(Doubt)?;
    let (length, rest) = match *after {
        [0x81, length, ref rest @ ..] if length >= 0x80 => (usize::from(length), rest),
        [0x82, high, low, ref rest @ ..] if high > 0 => {
            (usize::from(u16::from_be_bytes([high, low])), rest)
        }
        [length, ref rest @ ..] if length < 0x80 => (usize::from(length), rest),
        _ => return Err(Doubt),
    };
    let (value, rest) = rest.split_at_checked(length).ok_or(Doubt)?;
    *from = rest;
    if tags.contains(tag) { Ok(value) } else { Err(Doubt) }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, DnValue, KeyPair, SanType};

    use super::{Doubt, common_name, name};

    fn named(common: impl Into<Option<DnValue>>, others: Vec<SanType>) -> Option<String> {
        let mut params = CertificateParams::new([]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "somewhere");
        if let Some(common) = common.into() {
            params.distinguished_name.push(DnType::CommonName, common);
        }
        params.subject_alt_names = others;
        let signed = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        name(signed.der())
    }

    fn text(text: &str) -> DnValue {
        DnValue::Utf8String(text.into())
    }

    #[test]
    fn the_common_name_comes_first_then_a_uri_then_a_dns_name() {
        let uri = SanType::URI("spiffe://here/jobs".try_into().unwrap());
        let dns = SanType::DnsName("jobs.example".try_into().unwrap());
        let both = vec![dns.clone(), uri];
        assert_eq!(named(text("jöbs"), both.clone()).as_deref(), Some("jöbs"));
        assert_eq!(named(None, both).as_deref(), Some("spiffe://here/jobs"));
        assert_eq!(named(None, vec![dns]).as_deref(), Some("jobs.example"));
        assert_eq!(named(None, vec![]), None);
        let long = "x".repeat(300);
        assert_eq!(named(text(&long), vec![]), Some(long));
        let printable = DnValue::PrintableString("jobs".try_into().unwrap());
        assert_eq!(named(printable, vec![]).as_deref(), Some("jobs"));
    }

    #[test]
    fn what_others_may_read_differently_is_no_name() {
        let dns = SanType::DnsName("jobs.example".try_into().unwrap());
        assert_eq!(named(text("root\0.example"), vec![dns.clone()]), None);
        assert_eq!(named(text(""), vec![dns.clone()]), None);
        let old = DnValue::BmpString("jobs".try_into().unwrap());
        assert_eq!(named(old, vec![dns]), None);

        let one = [0x31, 0x0a, 0x30, 0x08, 0x06, 0x03, 0x55, 0x04, 0x03, 0x0c, 0x01, b'a'];
        assert_eq!(common_name(&one), Ok(Some("a".into())));
        assert_eq!(common_name(&[one, one].concat()), Err(Doubt), "which of the two?");
        assert_eq!(common_name(&[]), Ok(None));
        for cut in 1..one.len() {
            assert_eq!(common_name(&one[..cut]), Err(Doubt));
        }
        for length in [[0x81, 0x0a], [0x80, 0x00], [0x84, 0x00]] {
            let odd = [&[0x31][..], &length, &one[2..]].concat();
            assert_eq!(common_name(&odd), Err(Doubt), "a length in an odd form");
        }
    }
}
