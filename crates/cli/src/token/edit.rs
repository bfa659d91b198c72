//! Changes to the text of an access file. What people wrote in it, comments above all, stays as it
//! is; and no change is accepted after which anyone else would have other rights than before.

use std::path::Path;

use anyhow::{Result, bail, ensure};
use keylatch_server::access::{Access, NewToken, Right, Rule};
use toml_edit::{Array, ArrayOfTables, Document, DocumentMut, Item, Table, value};

/// What is added.
pub(super) struct Added<'a> {
    pub(super) principal: &'a str,
    pub(super) token: &'a NewToken,
    pub(super) created: &'a str,
}

/// The text with one more token; with the principal if it is new, and with these rules.
pub(super) fn add(path: &Path, text: &str, added: &Added<'_>, rules: Vec<Rule>) -> Result<String> {
    let before = Access::parse(path, text)?;
    let mut document: DocumentMut = text.parse()?;
    let name = added.principal;
    if before.by_name(name).is_none() {
        ensure!(
            !rules.is_empty(),
            "'{name}' is new, and without rules it may do nothing: add --prefix PREFIX --right RIGHT"
        );
        add_principal(&mut document, name)?;
    }
    let principal = tables(document.as_table_mut(), "principal")?
        .iter_mut()
        .find(|table| table.get("name").and_then(Item::as_str) == Some(name))
        .expect("it was there, or was added");
    for rule in rules {
        add_rule(principal, &rule)?;
    }
    let mut token = Table::new();
    token["id"] = value(added.token.id());
    token["hash"] = value(added.token.hash());
    token["created"] = value(added.created);
    tables(principal, "token")?.push(token);

    let text = document.to_string();
    let after = Access::parse(path, &text)?;
    let found = after.by_token(&added.token.reveal());
    ensure!(found.is_some_and(|found| *found.name == *name), "{}", by_hand(path));
    check_others(path, &before, &after, |principal, _| principal == name)?;
    // Before it was added it cannot have been another's.
    ensure!(before.by_token(&added.token.reveal()).is_none(), "{}", by_hand(path));
    Ok(text)
}

/// The text without the token of this id. Comments above it stay, as they may be about more.
pub(super) fn remove(path: &Path, text: &str, id: &str) -> Result<String> {
    let before = Access::parse(path, text)?;
    let document = Document::parse(text)?;
    let principals = document.get("principal").and_then(Item::as_array_of_tables);
    let tokens = principals
        .into_iter()
        .flat_map(ArrayOfTables::iter)
        .filter_map(|principal| principal.get("token").and_then(Item::as_array_of_tables));
    let is_it = |table: &&Table| table.get("id").and_then(Item::as_str) == Some(id);
    let found = tokens.flat_map(ArrayOfTables::iter).find(is_it);
    let Some((table, span)) = found.and_then(|table| Some((table, table.span()?))) else {
        bail!(by_hand(path))
    };
    let ends = table.iter().filter_map(|(_, item)| item.span()).map(|span| span.end);
    let end = ends.chain([span.end]).max().unwrap_or(span.end);
    // With the rest of its last line, which may have a comment on it.
    let end = end + text[end..].find('\n').map_or(text.len() - end, |at| at + 1);
    let text = [&text[..span.start], &text[end..]].concat();

    let after = Access::parse(path, &text)?;
    ensure!(after.tokens().all(|(other, _)| other != id), "{}", by_hand(path));
    check_others(path, &before, &after, |_, token| token == id)?;
    Ok(text)
}

/// A principal at the very end, behind the last comment too. In front of something that belongs to
/// another one, that would become the new one's.
fn add_principal(document: &mut DocumentMut, name: &str) -> Result<()> {
    let last = last_position(document.as_table());
    let mut above = document.trailing().as_str().unwrap_or_default().to_owned();
    if !above.is_empty() && !above.ends_with('\n') {
        above.push('\n');
    }
    if last > 0 || !above.is_empty() {
        above.push('\n');
    }
    document.set_trailing("");
    let mut principal = Table::new();
    principal["name"] = value(name);
    principal.set_position(Some(last + 1));
    principal.decor_mut().set_prefix(above);
    tables(document.as_table_mut(), "principal")?.push(principal);
    Ok(())
}

fn last_position(table: &Table) -> isize {
    let nested = table.iter().flat_map(|(_, item)| {
        let array = item.as_array_of_tables().into_iter().flat_map(ArrayOfTables::iter);
        array.chain(item.as_table())
    });
    nested.map(last_position).chain(table.position()).max().unwrap_or(0)
}

/// A rule of its own, or what is missing in one for the same prefix.
fn add_rule(principal: &mut Table, rule: &Rule) -> Result<()> {
    let rules = tables(principal, "rule")?;
    let same =
        |table: &&mut Table| table.get("prefix").and_then(Item::as_str) == Some(rule.prefix());
    let words = rule.rights().map(Right::word);
    if let Some(known) = rules.iter_mut().find(same) {
        let rights = known.get_mut("rights").and_then(Item::as_array_mut);
        let rights = rights.expect("the file was read with success");
        for word in words {
            if !rights.iter().any(|known| known.as_str() == Some(word)) {
                rights.push(word);
            }
        }
        return Ok(());
    }
    let mut table = Table::new();
    table["prefix"] = value(rule.prefix());
    table["rights"] = value(words.collect::<Array>());
    rules.push(table);
    Ok(())
}

/// The tables `[[name]]`, which are begun if there are none.
fn tables<'a>(table: &'a mut Table, name: &str) -> Result<&'a mut ArrayOfTables> {
    let item = table.entry(name).or_insert(Item::ArrayOfTables(ArrayOfTables::new()));
    match item.as_array_of_tables_mut() {
        Some(tables) => Ok(tables),
        None => bail!(
            "the access file has `{name} = [..]`: write it as [[..{name}]] tables, which this command \
             can change, or change the file by hand"
        ),
    }
}

/// Every principal has the rules, and every token the principal, that it had, but for what was
/// meant to change.
fn check_others(
    path: &Path,
    before: &Access,
    after: &Access,
    meant: impl Fn(&str, &str) -> bool,
) -> Result<()> {
    let same_rules = before.principals().all(|principal| {
        meant(&principal.name, "") || after.by_name(&principal.name).as_ref() == Some(principal)
    });
    let whose = |access: &Access, id: &str| {
        let found = access.tokens().find(|(known, _)| *known == id);
        found.map(|(_, token)| token.principal().name.clone())
    };
    let same_tokens = before.tokens().all(|(id, token)| {
        let name = &token.principal().name;
        meant("", id) || whose(after, id).as_ref() == Some(name)
    });
    let certificates = |access: &Access| {
        let all = access.certificates().map(|(cn, of)| (cn.to_owned(), of.name.clone()));
        let mut all: Vec<_> = all.collect();
        all.sort_unstable();
        all
    };
    ensure!(
        same_rules && same_tokens && certificates(before) == certificates(after),
        "{}",
        by_hand(path)
    );
    Ok(())
}

fn by_hand(path: &Path) -> String {
    format!(
        "{} is written in a way that this command cannot change: edit it by hand",
        path.display()
    )
}
