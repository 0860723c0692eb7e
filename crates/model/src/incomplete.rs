/// The machine of a disk whose content is not whole, as long as an import writes it. Such a disk is
/// seen in each list, and no machine's user may open its sockets by it.
pub const INCOMPLETE: &str = "incomplete-import";
