//! Rows in columns as wide as what stands in them.

pub(crate) fn lay_out<const N: usize>(head: &[&str; N], rows: &[[String; N]]) -> String {
    let rows: Vec<[String; N]> =
        rows.iter().map(|row| row.each_ref().map(|cell| shown(cell))).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([head[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..N).map(width).collect();
    let line = |cells: &[&str]| {
        let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let mut lines = vec![line(head)];
    lines.extend(rows.iter().map(|row| line(&row.each_ref().map(String::as_str))));
    lines.join("\n")
}

/// Whatever others have written must not move the cursor, or change a terminal.
fn shown(cell: &str) -> String {
    let mut shown = String::with_capacity(cell.len());
    for letter in cell.chars() {
        match letter.is_control() {
            true => shown.extend(letter.escape_default()),
            false => shown.push(letter),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_would_move_the_cursor_is_shown_as_it_is_written() {
        let rows = [["a\nb\u{1b}[2J".into()]];
        assert_eq!(super::lay_out(&["KEY"], &rows), "KEY\na\\nb\\u{1b}[2J");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [
            ["1".into(), "a long one".into(), "x".into()],
            ["22".into(), "é".into(), String::new()],
        ];
        let expected = "A   KEY         C\n1   a long one  x\n22  é";
        assert_eq!(super::lay_out(&["A", "KEY", "C"], &rows), expected);
    }
}
