//! The first page of the report. It lists the papers, their tables, and the verdicts on the rows of each table.

use crate::figure::{CLASSES, CONSISTENT, DIFFERS, EQUAL, HOLDS, HOLDS_NOT, MISPRINT, MISSED, WITHIN, class};
use crate::plot::escape;
use std::fmt::Write as _;

/// The entries of the first page, in the order in which it shows them.
#[derive(Default)]
pub(crate) struct Overview {
    plans: Vec<OfPlan>,
    deployments: Vec<OfDeployment>,
}

/// A plan that reproduces a paper.
struct OfPlan {
    paper: Paper,
    /// The name of the plan. It is also the name of its section in the report, and the argument of `tegmen lab run`.
    name: String,
    /// For each table of the plan, its name, and the number of verdicts of each class in [`CLASSES`]. The list is empty
    /// if the plan was not run.
    tables: Vec<(String, [usize; CLASSES.len()])>,
}

/// A deployment, and one line that describes its result. The line is `None` if the deployment was not run.
struct OfDeployment {
    name: String,
    own: bool,
    text: Option<String>,
}

/// A paper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Paper {
    /// The short name of the paper.
    pub(crate) name: &'static str,
    /// The title of the paper.
    pub(crate) title: &'static str,
}

impl Overview {
    /// Adds a plan of a paper. Until a verdict is counted, the page shows that the plan was not run.
    pub(crate) fn begin(&mut self, paper: Paper, name: &str) {
        self.plans.push(OfPlan { paper, name: name.to_owned(), tables: Vec::new() });
    }

    /// Counts a verdict on a row of this table, in the plan that was added last. Returns true if it is the first
    /// verdict of the table.
    pub(crate) fn count(&mut self, table: &str, verdict: &str) -> bool {
        let Some(plan) = self.plans.last_mut() else { return false };
        let known = plan.tables.iter().position(|(name, _)| name == table);
        let place = known.unwrap_or_else(|| {
            plan.tables.push((table.to_owned(), [0; CLASSES.len()]));
            plan.tables.len() - 1
        });
        plan.tables[place].1[class(verdict)] += 1;
        known.is_none()
    }

    /// Returns the number of verdicts of each class for a table of a plan; `None` if there is no such table.
    #[cfg(test)]
    pub(crate) fn verdicts(&self, plan: &str, table: &str) -> Option<[usize; CLASSES.len()]> {
        let plan = self.plans.iter().find(|known| known.name == plan)?;
        plan.tables.iter().find(|(name, _)| name == table).map(|(_, verdicts)| *verdicts)
    }

    /// Adds a deployment. `name` is the name of its section. `text` is a line about its result, or `None` if the
    /// deployment was not run. `own` is true for a deployment of the user.
    pub(crate) fn deployment(&mut self, name: &str, own: bool, text: Option<String>) {
        self.deployments.push(OfDeployment { name: name.to_owned(), own, text });
    }

    /// Returns the first page as HTML.
    pub(crate) fn html(&self) -> String {
        let mut html = String::from("<section id=\"overview\">\n");
        html += &self.totals();
        html += "<div class=\"papers\">\n";
        html += &self.of_deployments("Your deployments", true);
        let mut papers: Vec<Paper> = Vec::new();
        for OfPlan { paper, .. } in &self.plans {
            if !papers.contains(paper) {
                papers.push(*paper);
            }
        }
        for paper in papers {
            html += &self.of_paper(paper);
        }
        html += &self.of_deployments("Deployments of the laboratory", false);
        html + "</div>\n</section>\n"
    }

    /// Returns, as HTML, the legend of the marks, which are signs for verdicts. The legend also contains the number of
    /// table rows with each mark.
    fn totals(&self) -> String {
        let tables = || self.plans.iter().flat_map(|plan| &plan.tables);
        let rows: usize = tables().flat_map(|(_, verdicts)| verdicts).sum();
        let mut html = format!(
            "<p>{rows} rows in {} tables and figures. Each row has one verdict. The marks and numbers beside a table link to its \
             rows.</p>\n<ul class=\"legend\">\n",
            tables().count()
        );
        for group in &GROUPS {
            let count: usize = tables().map(|(_, verdicts)| group.of(verdicts)).sum();
            let Group { mark, class, about, .. } = group;
            // Writing to a String cannot fail.
            let _ = writeln!(html, "<li><b class=\"{class}\">{mark} {count}</b> {about}</li>");
        }
        html + "</ul>\n"
    }

    fn of_paper(&self, paper: Paper) -> String {
        let mut html =
            format!("<article><h3>{}</h3>\n<p class=\"title\">{}</p>\n", escape(paper.name), escape(paper.title));
        for OfPlan { name, tables, .. } in self.plans.iter().filter(|plan| plan.paper == paper) {
            if tables.is_empty() {
                html += &not_run(name, name);
                continue;
            }
            // Writing to a String cannot fail.
            let _ = writeln!(html, "<p class=\"plan\"><a href=\"#{name}\">{name}</a></p>\n<ul class=\"chips\">");
            for (table, verdicts) in tables {
                let groups = || GROUPS.iter().filter(|group| group.of(verdicts) > 0);
                let marks: Vec<_> =
                    groups().map(|group| format!("<b>{} {}</b>", group.mark, group.of(verdicts))).collect();
                let worst = groups().rev().find(|group| group.asks).or_else(|| groups().next());
                let worst = worst.map_or("", |group| group.class);
                let (id, table) = (anchor(name, table), escape(&title(table)));
                let _ = writeln!(html, "<li><a class=\"{worst}\" href=\"#{id}\">{table} {}</a></li>", marks.join(" "));
            }
            html += "</ul>\n";
        }
        html + "</article>\n"
    }

    fn of_deployments(&self, title: &str, own: bool) -> String {
        let mut of_it = self.deployments.iter().filter(|deployment| deployment.own == own).peekable();
        if of_it.peek().is_none() {
            return String::new();
        }
        let lines: String = of_it
            .map(|OfDeployment { name, text, own }| match text {
                Some(text) => format!("<p class=\"plan\"><a href=\"#{name}\">{name}</a>: {}</p>\n", escape(text)),
                None => not_run(if *own { "FILE.toml" } else { name }, name),
            })
            .collect();
        format!("<article><h3>{title}</h3>\n{lines}</article>\n")
    }
}

/// Returns a line for a plan or a deployment that was not run. The line contains the command that runs it.
fn not_run(plan: &str, name: &str) -> String {
    format!("<p class=\"plan\">{name} was not run. Type <code>tegmen lab run {plan}</code></p>\n")
}

/// A group of verdict classes that have the same mark.
struct Group {
    mark: &'static str,
    class: &'static str,
    about: &'static str,
    /// True if one verdict of this group is enough to give a table the color of this group, even if the other verdicts
    /// in the table belong to better groups.
    asks: bool,
    verdicts: &'static [&'static str],
}

impl Group {
    /// Returns the number of verdicts that belong to this group. `verdicts` has the number of verdicts of each class in
    /// `CLASSES`. Each class belongs to one group.
    fn of(&self, verdicts: &[usize; CLASSES.len()]) -> usize {
        let of_it = CLASSES.iter().zip(verdicts).filter(|(class, _)| self.verdicts.contains(class));
        of_it.map(|(_, count)| count).sum()
    }
}

/// The groups of verdicts, from the best to the worst.
const GROUPS: [Group; 6] = [
    Group {
        mark: "✓",
        class: "agrees",
        about: "agree: equal, within the bound, or the statement holds",
        asks: false,
        verdicts: &[EQUAL, WITHIN, HOLDS],
    },
    Group {
        mark: "=",
        class: "soft",
        about: "the paper agrees with itself: arithmetic on its own numbers",
        asks: false,
        verdicts: &[CONSISTENT],
    },
    Group {
        mark: "·",
        class: "soft",
        about: "shown beside the paper and not judged",
        asks: false,
        verdicts: &["not judged"],
    },
    Group { mark: "!", class: "odd", about: "the paper contradicts itself", asks: true, verdicts: &[MISPRINT] },
    Group {
        mark: "✗",
        class: "missed",
        about: "an aim was missed, or a conclusion does not hold here",
        asks: true,
        verdicts: &[MISSED, HOLDS_NOT],
    },
    Group { mark: "≠", class: "differs", about: "should agree and differ", asks: true, verdicts: &[DIFFERS] },
];

/// Returns the HTML id of the first row of a table.
pub(crate) fn anchor(plan: &str, table: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    format!("{plan}-{}", table.chars().map(plain).collect::<String>())
}

/// Returns the name of a table for readers, such as "figure 9" for `fig9`.
fn title(table: &str) -> String {
    for (short, long) in [("figure", "figure"), ("fig", "figure"), ("table", "table")] {
        if let Some(number) =
            table.strip_prefix(short).filter(|number| number.starts_with(|c: char| c.is_ascii_digit()))
        {
            return format!("{long} {number}");
        }
    }
    table.replace('_', " ")
}

#[cfg(test)]
mod tests;
