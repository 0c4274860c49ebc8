#include "lockstep/apps/inspect_data/inspect_data_options.h"

#include "lockstep/apps/convert_data/convert_options.h"
#include "lockstep/apps/shared/command_line/arguments.h"
#include "lockstep/apps/shared/command_line/flag_table.h"
#include "lockstep/apps/shared/command_line/usage_error.h"

namespace lockstep::apps {
namespace {

FlagTable inspect_data_flags() {
  return {
      .program = "inspect_data",
      .summary = "Summarizes a data set: rows, columns, nulls, ranges, histograms, classes, sizes of images.",
      .operands = {"DATA"},
      .flags = {{"Reading", "rows", "N",
                 "Read about N rows, spread over the data, or the first N of click logs. 0: all", "0"},
                {"Reading", "skip-bad", "", "Leave out malformed rows of click logs, and count them"},
                {"Reading", "threads", "N", "Threads to read with. 0: one per core", "0"},
                {"Output", "json", "", "Print all values as JSON"},
                {"Output", "html", "FILE",
                 "Also write a page with charts. FILE must end in .html, and is replaced"},
                {"Output", "quiet", "", "Show no progress"},
                {"Other", "h,help", "", "Print this help, and exit", "", FlagRole::kAction},
                {"Other", "version", "", "Print the version of Lockstep, and exit", "", FlagRole::kAction}},
      .after =
          "\nDATA is one of these, or several of the first or the last kind, separated by commas:\n"
          "  click logs as Criteo's, tab-separated: files, also .gz and .zst, folders, or 'patterns*'\n"
          "  a folder or .zip of images with one folder per class: <DATA>/<class>/<name>.png\n"
          "  Parquet files, folders of them, 'patterns*', or URIs such as s3://bucket/clicks\n"
          "\nExamples:\n"
          "  inspect_data clicks                            # a folder of Parquet files\n"
          "  inspect_data 'logs/day_*.gz' --rows 1000000    # a part is enough to see what is in it\n"
          "  inspect_data photos.zip/train --html photos.html\n"
          "  inspect_data clicks --json | jq .columns[0]\n"
          "\nEach thread holds one column of a row group, or 16 384 rows of click logs. Beyond 1000\n"
          "distinct values of a column, their number is an estimate with a standard error of 0.8 %,\n"
          "shown as 'about' (HyperLogLog).\n"
          "\nExit codes: 0 done, 1 any other error, 2 usage, 3 the data cannot be read or are malformed,\n"
          "4 or 7 the page cannot be written, 7 no memory, 130 and 143 stopped by SIGINT or SIGTERM.\n"};
}

}  // namespace

InspectDataCommandLine parse_inspect_data_arguments(const std::vector<std::string>& arguments) {
  const Arguments given = parse_arguments(inspect_data_flags(), arguments);
  InspectDataCommandLine line;
  if (given.is_on("help")) {
    line.action = InspectDataCommandLine::Action::kHelp;
    return line;
  }
  if (given.is_on("version")) {
    line.action = InspectDataCommandLine::Action::kVersion;
    return line;
  }
  InspectDataOptions& options = line.options;
  options.place = given.operands().front();
  options.paths = places_of(options.place);
  for (const std::string& path : options.paths)
    if (path.empty())
      throw UsageError("DATA: expected paths separated by commas, but got '" + options.place + "'");
  options.num_rows = given.integer("rows", {.least = 0}, options.num_rows);
  options.threads = given.integer("threads", {.least = 0, .most = 1024}, options.threads);
  options.html = given.text("html", "");
  if (given.has("html") && !options.html.ends_with(".html"))
    given.refuse("html", "a file whose name ends in .html");
  options.is_json = given.is_on("json");
  options.skips_bad = given.is_on("skip-bad");
  options.is_quiet = given.is_on("quiet");
  return line;
}

std::string inspect_data_help_text(const std::string& program) {
  return help_text(inspect_data_flags(), program);
}

}  // namespace lockstep::apps
