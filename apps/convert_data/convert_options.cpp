#include "lockstep/apps/convert_data/convert_options.h"

#include <filesystem>
#include <sstream>
#include <system_error>

#include "lockstep/apps/shared/command_line/arguments.h"
#include "lockstep/apps/shared/command_line/flag_table.h"
#include "lockstep/apps/shared/command_line/usage_error.h"

namespace lockstep::apps {
namespace {

constexpr const char* kParquetFlags[] = {"rows-per-file", "rows-per-group", "compression", "shuffle-seed"};

FlagTable convert_flags() {
  return {
      .program = "convert_data",
      .summary = "Converts click logs and images to Parquet and back. The way back gives the same bytes.",
      .operands = {"IN", "OUT"},
      .flags = {{"Parquet files", "rows-per-file", "N",
                 "Begin another file after N rows. 0: a file for each input", "0"},
                {"Parquet files", "rows-per-group", "N",
                 "Rows of a row group, the unit that training reads and shuffles. 0: 131072 rows of click "
                 "logs, or "
                 "as many images as have 64 MiB, up to 8192",
                 "0"},
                {"Parquet files", "compression", "NAME", "none, snappy, gzip, lz4 or zstd",
                 ConvertOptions{}.compression},
                {"Parquet files", "shuffle-seed", "N",
                 "Write images in an order drawn from this seed, so that each row group has images of all "
                 "classes. "
                 "By default, they are sorted by class and name"},
                {"Conversion", "threads", "N", "Threads to convert with. 0: one per core", "0"},
                {"Conversion", "skip-bad", "", "Leave out malformed rows of click logs, and count them"},
                {"Conversion", "overwrite", "", "Replace OUT if it exists"},
                {"Conversion", "quiet", "", "Show no progress"},
                {"Other", "h,help", "", "Print this help, and exit", "", FlagRole::kAction},
                {"Other", "version", "", "Print the version of Lockstep, and exit", "", FlagRole::kAction}},
      .after =
          "\nIN is one of these, or several of the first or the last kind, separated by commas:\n"
          "  click logs as Criteo's, tab-separated: files, also .gz and .zst, folders, or 'patterns*'\n"
          "  a folder or .zip of images with one folder per class: <IN>/<class>/<name>.png\n"
          "  Parquet files, folders of them, 'patterns*', or URIs such as s3://bucket/clicks\n"
          "\nOUT is a file if its name ends in .parquet (from click logs and images), .tsv (back to click\n"
          "logs) or .zip (back to images). Any other name is a folder, which gets a file for each input,\n"
          "or a folder for each class. OUT appears when it is complete; if the conversion fails or is\n"
          "stopped, nothing is left of it.\n"
          "\nParquet files of click logs have the columns label, I1 to I13 and C1 to C26. Those of images\n"
          "have the columns image (the bytes of its file), label (the name of its class) and name (of its\n"
          "file). docs/data.md describes both.\n"
          "\nExamples:\n"
          "  convert_data 'logs/day_*.gz' clicks              # clicks/day_0.parquet, ...\n"
          "  convert_data clicks/day_0.parquet day_0.tsv      # back to click logs\n"
          "  convert_data photos.zip/train train.parquet --shuffle-seed 1\n"
          "  convert_data train.parquet photos                # back to photos/<class>/<name>\n"
          "\nExit codes: 0 done, 1 any other error, 2 usage, or OUT exists, 3 IN cannot be read or is\n"
          "malformed, 4 OUT may not be written, 7 no memory or disk space, 130 and 143 stopped by SIGINT\n"
          "or SIGTERM.\n"};
}

}  // namespace

std::vector<std::string> places_of(const std::string& list) {
  std::error_code ignored;
  if (std::filesystem::exists(list, ignored)) return {list};
  std::vector<std::string> places;
  std::istringstream pieces(list + ",");
  for (std::string piece; std::getline(pieces, piece, ',');) places.push_back(piece);
  return places;
}

ConvertCommandLine parse_convert_arguments(const std::vector<std::string>& arguments) {
  const Arguments given = parse_arguments(convert_flags(), arguments);
  ConvertCommandLine line;
  if (given.is_on("help")) {
    line.action = ConvertCommandLine::Action::kHelp;
    return line;
  }
  if (given.is_on("version")) {
    line.action = ConvertCommandLine::Action::kVersion;
    return line;
  }
  ConvertOptions& options = line.options;
  options.in = places_of(given.operands()[0]);
  for (const std::string& place : options.in)
    if (place.empty())
      throw UsageError("IN: expected paths separated by commas, but got '" + given.operands()[0] + "'");
  options.out = given.operands()[1];
  if (options.out.empty()) throw UsageError("OUT: expected the name of a file or folder, but got ''");
  options.rows_per_file = given.integer("rows-per-file", {.least = 0}, options.rows_per_file);
  options.rows_per_group = given.integer("rows-per-group", {.least = 0}, options.rows_per_group);
  options.compression =
      given.name("compression", {"none", "snappy", "gzip", "lz4", "zstd"}, options.compression);
  if (given.has("shuffle-seed")) options.shuffle_seed = given.seed("shuffle-seed", 0);
  options.threads = given.integer("threads", {.least = 0, .most = 1024}, options.threads);
  options.skips_bad = given.is_on("skip-bad");
  options.overwrites = given.is_on("overwrite");
  options.is_quiet = given.is_on("quiet");
  for (const char* flag : kParquetFlags)
    if (given.has(flag)) options.flags_of_parquet.push_back(given.spelling(flag));
  return line;
}

std::string convert_help_text(const std::string& program) {
  return help_text(convert_flags(), program);
}

}  // namespace lockstep::apps
