#include "lockstep/apps/convert_data/conversion_plan.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "lockstep/apps/convert_data/click_text.h"
#include "lockstep/apps/convert_data/image_conversion.h"
#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/images/internal/class_folder.h"
#include "lockstep/datasets/images/internal/image_names.h"
#include "lockstep/datasets/parquet/internal/find_parquet_files.h"
#include "lockstep/datasets/parquet/parquet_dataset.h"
#include "lockstep/datasets/stores/internal/data_uri.h"

namespace lockstep::apps {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kClicksPerGroup = int64_t{1} << 17;

bool is_parquet_name(std::string_view name) {
  return name.ends_with(".parquet") || name.ends_with(".pq");
}

/// Removes the first of some endings that the name has.
std::string without_ending(std::string name, const std::vector<std::string>& endings) {
  for (const std::string& ending : endings) {
    if (name.size() <= ending.size() || !name.ends_with(ending)) continue;
    name.resize(name.size() - ending.size());
    return name;
  }
  return name;
}

/// Returns the name of an input's output in a folder, without its ending.
std::string stem_of(const std::string& input) {
  const std::string path = is_uri(input) ? parse_uri(input).path : input;
  fs::path name = fs::path(path).filename();
  if (name.empty()) name = fs::path(path).parent_path().filename();
  const std::string plain = without_ending(name.string(), {".gz", ".zst"});
  return without_ending(plain, {".parquet", ".pq", ".tsv", ".txt", ".csv", ".zip"});
}

/// Returns the names of local files and folders.
std::vector<std::string> local_places(const std::vector<std::string>& places) {
  std::vector<std::string> local;
  for (const std::string& place : places)
    if (const std::string path = without_file_scheme(place); !is_uri(path)) local.push_back(path);
  return local;
}

class Planner {
 public:
  Planner(const ConvertOptions& options, ConversionProgress& progress)
      : options_(options), progress_(progress) {
    if (is_uri(options.out))
      throw UsageError("OUT: expected a file or folder on this machine, but got a URI");
  }

  ConversionPlan plan() {
    if (options_.in.size() == 1 && is_image_place(options_.in.front())) {
      plan_images_to_parquet();
    } else if (are_parquet_files(options_.in)) {
      plan_from_parquet();
    } else {
      plan_clicks_to_parquet();
    }
    return std::move(plan_);
  }

 private:
  bool ends_in(std::string_view ending) const { return options_.out.ends_with(ending); }

  /// Decides whether OUT is a file with this ending or a folder, and prepares it.
  bool open_out(const std::string& from, const std::string& ending, std::vector<std::string> inputs,
                IsOwnFile is_own) {
    const bool is_file = ending == ".parquet" ? is_parquet_name(options_.out) : ends_in(ending);
    for (const char* other : {".parquet", ".pq", ".tsv", ".txt", ".csv", ".zip", ".gz", ".zst"})
      if (!is_file && ends_in(other))
        throw UsageError("OUT: expected a name that ends in " + ending + ", or a folder, as IN has " + from +
                         ", but got '" + options_.out + "'");
    plan_.out = std::make_unique<OutputPlace>(OutputPlace::Options{.path = options_.out,
                                                                   .is_file = is_file,
                                                                   .overwrites = options_.overwrites,
                                                                   .inputs = std::move(inputs),
                                                                   .is_own = std::move(is_own)});
    return is_file;
  }

  void refuse_parquet_flags() const {
    if (!options_.flags_of_parquet.empty())
      throw UsageError(options_.flags_of_parquet.front() +
                       ": expected an IN that is converted to Parquet, but it is Parquet");
  }

  void check_rows_per_file(bool is_file) const {
    if (is_file && options_.rows_per_file > 0)
      throw UsageError("--rows-per-file: expected OUT to be a folder, but it is the file " + options_.out);
  }

  void refuse_flag(bool is_given, const std::string& flag, const std::string& expected) const {
    if (is_given) throw UsageError(flag + ": expected an IN with " + expected + ", but it has none");
  }

  /// Returns the output for a stem in the folder; numbered ones get their numbers and endings later.
  std::string out_of(const std::string& stem, const std::string& ending) const {
    return (fs::path(plan_.out->path()) / (options_.rows_per_file > 0 ? stem : stem + ending)).string();
  }

  /// Throws UsageError if two inputs have the same output.
  static void check_stems(const std::vector<std::string>& inputs) {
    std::map<std::string, std::string> seen;
    for (const std::string& input : inputs) {
      const auto [other, is_new] = seen.try_emplace(stem_of(input), input);
      if (!is_new)
        throw UsageError("IN: expected files with different names, as each gets a file in OUT, but got " +
                         other->second + " and " + input);
    }
  }

  void plan_clicks_to_parquet() {
    refuse_flag(options_.shuffle_seed.has_value(), "--shuffle-seed", "images");
    const std::vector<std::string> files = find_click_files(options_.in);
    for (const std::string& file : files) compression_of(file);  // throws if it cannot be read
    plan_.kind = ConversionKind::kClicksToParquet;
    const bool is_file = is_parquet_name(options_.out);
    if (!is_file) check_stems(files);
    check_rows_per_file(is_file);
    open_out("click logs", ".parquet", files, is_parquet_name);
    ClickConversion conversion{
        .in = files,
        .out = plan_.out->path(),
        .rows_per_file = options_.rows_per_file,
        .rows_per_group = options_.rows_per_group > 0 ? options_.rows_per_group : kClicksPerGroup,
        .compression = options_.compression,
        .skips_bad = options_.skips_bad};
    plan_.notes.resize(is_file ? 1 : files.size());
    for (size_t i = 0; i < plan_.notes.size(); ++i) {
      if (!is_file) conversion.in = {files[i]};
      if (!is_file) conversion.out = out_of(stem_of(files[i]), ".parquet");
      plan_.streams.push_back(clicks_to_parquet(conversion, plan_.notes[i], progress_));
    }
    count_bytes(files);
  }

  void plan_images_to_parquet() {
    refuse_flag(options_.skips_bad, "--skip-bad", "click logs");
    const std::string& in = options_.in.front();
    ClassFolder folder = list_class_folder(in);
    plan_.kind = ConversionKind::kImagesToParquet;
    check_rows_per_file(is_parquet_name(options_.out));
    const bool is_file = open_out("images", ".parquet",
                                  {folder.archive.empty() ? folder.path : folder.archive}, is_parquet_name);
    plan_.ignored = folder.ignored;
    plan_.total = static_cast<int64_t>(folder.files.size());
    plan_.counted_in = "images";
    plan_.rows_noun = "images";
    plan_.num_inputs = 1;
    const std::string out = is_file ? plan_.out->path() : out_of(stem_of(in), ".parquet");
    plan_.streams.push_back(images_to_parquet({.in = std::move(folder),
                                               .out = out,
                                               .rows_per_file = options_.rows_per_file,
                                               .rows_per_group = options_.rows_per_group,
                                               .compression = options_.compression,
                                               .shuffle_seed = options_.shuffle_seed},
                                              progress_));
  }

  void plan_from_parquet() {
    refuse_parquet_flags();
    refuse_flag(options_.skips_bad, "--skip-bad", "click logs");
    const std::vector<std::string> files = find_parquet_files(options_.in);
    count_bytes(local_places(files).size() == files.size() ? files : std::vector<std::string>{});
    plan_.num_inputs = files.size();
    if (has_image_columns(files.front())) {
      plan_parquet_to_images(files);
    } else {
      plan_parquet_to_clicks(files);
    }
  }

  void plan_parquet_to_images(const std::vector<std::string>& files) {
    plan_.kind = ConversionKind::kParquetToImages;
    const auto is_own = [](const std::string& name) {
      return name.ends_with('/') || has_image_extension(name);
    };
    const bool is_file = open_out("images", ".zip", local_places(files), is_own);
    plan_.rows_noun = "images";
    plan_.streams.push_back(parquet_to_images(
        files, is_file ? image_zip_sink(plan_.out->path()) : image_folder_sink(plan_.out->path()),
        progress_));
  }

  void plan_parquet_to_clicks(const std::vector<std::string>& files) {
    plan_.kind = ConversionKind::kParquetToClicks;
    try {
      open_click_parquet(files.front());
    } catch (const DataError& error) {
      throw DataError(std::string(error.what()) + "; images have the columns image and label");
    }
    if (!ends_in(".tsv")) check_stems(files);
    const bool is_file = open_out("click logs", ".tsv", local_places(files),
                                  [](const std::string& name) { return name.ends_with(".tsv"); });
    if (is_file) {
      plan_.streams.push_back(parquet_to_clicks(files, plan_.out->path(), progress_));
      return;
    }
    for (const std::string& file : files)
      plan_.streams.push_back(parquet_to_clicks({file}, out_of(stem_of(file), ".tsv"), progress_));
  }

  void count_bytes(const std::vector<std::string>& files) {
    plan_.num_inputs = files.size();
    plan_.counted_in = "MiB";
    for (const std::string& file : files) plan_.total += bytes_of_file(file);
  }

  const ConvertOptions& options_;
  ConversionProgress& progress_;
  ConversionPlan plan_;
};

}  // namespace

bool is_image_place(const std::string& place) {
  if (place.ends_with(".zip") || place.find(".zip/") != std::string::npos) return true;
  std::error_code error;
  bool has_folder = false, has_file = false;
  for (fs::directory_iterator entry(place, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (is_hidden(name) || name.starts_with('_')) continue;
    if (!entry->is_directory(error)) {
      has_file = true;
      continue;
    }
    has_folder = true;
    std::error_code ignored;
    for (const auto& file : fs::directory_iterator(entry->path(), ignored))
      if (has_image_extension(file.path().filename().string())) return true;
  }
  return has_folder && !has_file;
}

ConversionPlan plan_conversion(const ConvertOptions& options, ConversionProgress& progress) {
  return Planner(options, progress).plan();
}

}  // namespace lockstep::apps
