#include "lockstep/apps/train_images/data/data_location.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/files/internal/open_file.h"
#include "lockstep/datasets/images/internal/class_folder.h"
#include "lockstep/datasets/images/internal/image_names.h"
#include "lockstep/datasets/images/mnist.h"
#include "lockstep/datasets/parquet/internal/find_parquet_files.h"
#include "lockstep/datasets/stores/internal/data_uri.h"
#include "lockstep/datasets/stores/internal/read_error.h"
#include "lockstep/runtime/base/internal/closest_name.h"

namespace lockstep::apps {
namespace {

namespace fs = std::filesystem;

constexpr const char* kVariable = "LOCKSTEP_MNIST_DIR";
constexpr const char* kExpected =
    "MNIST's IDX files, train/ and test/ with one folder of images a class (or a zip of them), or Parquet "
    "files";

/// Data at a path: which kind, and the folder or archive that holds it.
struct FoundData {
  DataKind kind;
  std::string path;
  std::string test_path = "";  // of Parquet files
};

bool is_parquet_name(const std::string& name) {
  return name.ends_with(".parquet") || name.ends_with(".pq");
}

/// Returns the names of the Parquet files directly in a folder.
std::vector<std::string> parquet_files_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator file(folder, error), end; !error && file != end; file.increment(error)) {
    std::string name = file->path().filename().string();
    if (is_parquet_name(name) && !is_hidden(name)) names.push_back(std::move(name));
  }
  return names;
}

/// Returns a place that names the Parquet files in a folder, which has some. Others may be beside them.
std::string place_of_files_in(const fs::path& folder, const std::vector<std::string>& names) {
  const auto is_usual = [](const std::string& name) { return name.ends_with(".parquet"); };
  return (std::any_of(names.begin(), names.end(), is_usual) ? folder / "*.parquet" : folder).string();
}

/// Returns the Parquet files of a folder. Those to train and to test on may have folders of their own, or
/// names that begin so, as Hugging Face's data sets have them: train-00000-of-00001.parquet.
std::optional<FoundData> parquet_in(const std::string& folder) {
  const auto names = parquet_files_in(folder);
  const auto is_there = [&](const std::string& part) {
    if (names.empty()) return !parquet_files_in(fs::path(folder) / part).empty();
    return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return name.starts_with(part) && name.ends_with(".parquet");
    });
  };
  const auto place_of = [&](const std::string& part) {
    const fs::path inner = fs::path(folder) / part;
    return names.empty() ? place_of_files_in(inner, parquet_files_in(inner)) : inner.string() + "*.parquet";
  };
  if (is_there("train")) {
    for (const std::string part : {"test", "validation"})
      if (is_there(part)) return FoundData{DataKind::kParquet, place_of("train"), place_of(part)};
  }
  if (names.empty()) return std::nullopt;
  return FoundData{DataKind::kParquet, place_of_files_in(folder, names)};
}

/// Returns the names of the files of a store's folder; none if there is no such folder.
std::vector<std::string> names_in_store(const std::string& uri) {
  std::vector<std::string> names;
  try {
    for (const std::string& file : find_parquet_files({uri}))
      names.push_back(fs::path(parse_uri(file).path).filename().string());
  } catch (const ReadError&) {
    throw;  // it does not say what there is
  } catch (const DataError&) {
    return {};
  }
  return names;
}

/// Returns the Parquet files of a store, those to train and to test on by the same rule as in a local folder.
FoundData parquet_in_store(const std::string& path) {
  const DataUri uri = parse_uri(path);
  const FoundData all{DataKind::kParquet, path};
  if (is_parquet_name(uri.path) || uri.path.find_first_of("*[") != std::string::npos) return all;
  const std::string folder = uri.path.substr(0, uri.path.find_last_not_of('/') + 1) + "/";
  const auto names = names_in_store(path);
  const auto is_there = [&](const std::string& part) {
    if (names.empty()) return !names_in_store(uri.with_path(folder + part)).empty();
    return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return name.starts_with(part) && name.ends_with(".parquet");
    });
  };
  const auto place_of = [&](const std::string& part) {
    return uri.with_path(folder + part + (names.empty() ? "" : "*.parquet"));
  };
  if (!is_there("train")) return all;
  for (const std::string part : {"test", "validation"})
    if (is_there(part)) return {DataKind::kParquet, place_of("train"), place_of(part)};
  return all;
}

/// Whether there is a folder, an archive, or a path inside one.
bool is_listable(const std::string& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return true;
  for (fs::path file = path; !file.empty() && file != file.parent_path(); file = file.parent_path()) {
    if (fs::is_regular_file(file, ignored)) return true;
  }
  return false;
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Returns the folder with train/ at a path in a file system or an archive: the path itself, or the only
/// folder in it, which programs that make archives put around a data set. Returns nothing if neither has
/// it.
std::optional<std::string> folder_with_train(const std::string& path) {
  const auto folders = list_folders(path);
  if (contains(folders, "train")) return path;
  if (folders.size() != 1) return std::nullopt;
  const std::string inner = (fs::path(path) / folders.front()).string();
  return contains(list_folders(inner), "train") ? std::optional(inner) : std::nullopt;
}

/// Returns the data at a path, if there is some. Throws DataError for a damaged archive.
std::optional<FoundData> find_data(const std::string& path) {
  std::error_code ignored;
  if (is_uri(without_file_scheme(path))) return parquet_in_store(path);
  if (is_uri(path) || is_parquet_name(path)) return FoundData{DataKind::kParquet, path};
  if (fs::is_directory(path, ignored))
    if (auto parquet = parquet_in(path)) return parquet;
  if (fs::is_directory(path, ignored) && holds_mnist(path)) return FoundData{DataKind::kMnistFiles, path};
  if (!is_listable(path)) return std::nullopt;
  if (auto folder = folder_with_train(path)) return FoundData{DataKind::kClassFolders, std::move(*folder)};
  return std::nullopt;
}

/// Returns the first names: "cat/, dog/, ...".
std::string first_of(const std::vector<std::string>& folders) {
  constexpr size_t kMaxNames = 5;
  std::string text;
  for (size_t i = 0; i < std::min(folders.size(), kMaxNames); ++i)
    text += (i == 0 ? "" : ", ") + folders[i] + "/";
  return folders.size() <= kMaxNames ? text : text + ", ...";
}

/// Says what is at a path that holds no data.
std::string what_is_at(const std::string& path) {
  if (is_listable(path)) {
    const auto folders = list_folders(path);
    return folders.empty() ? "the folder has neither" : "its folders are " + first_of(folders);
  }
  std::error_code error;
  if (fs::exists(path, error)) return "it is " + kind_of_file(path);
  return error ? "it cannot be looked at: " + error.message()
               : "there is no such file or folder" + did_you_mean(path, {"auto", "generated"});
}

/// Returns the data at a path. Throws DataError, which begins with `from`, if there is none, or no test/.
FoundData require_data(const std::string& from, const std::string& path) {
  const auto found = find_data(path);
  if (!found) throw DataError(c10::str(from, ": expected ", kExpected, ", but ", what_is_at(path)));
  if (found->kind != DataKind::kClassFolders) return *found;
  const auto folders = list_folders(found->path);
  if (contains(folders, "test")) return *found;
  throw DataError(c10::str(from, ": expected train/ and test/, but there is no ", found->path,
                           "/test; its folders are ", first_of(folders)));
}

}  // namespace

DataLocation locate_data(const std::string& data) {
  if (data == "generated") {
    return {.kind = DataKind::kGenerated, .path = "", .why = "generated digits, as asked for", .hint = ""};
  }
  if (data != "auto") {
    FoundData found = require_data("--data " + data, data);
    return {
        .kind = found.kind, .path = found.path, .why = found.path, .hint = "", .test_path = found.test_path};
  }
  if (const char* named = std::getenv(kVariable); named != nullptr && *named != '\0') {
    FoundData found = require_data(c10::str(kVariable, "=", named), named);
    return {.kind = found.kind,
            .path = found.path,
            .why = c10::str(found.path, ", named by ", kVariable),
            .hint = "",
            .variable = kVariable,
            .test_path = found.test_path};
  }
  for (const std::string path : {"data/mnist", "mnist.zip"}) {
    // A folder may have another purpose, but an archive of this name is meant.
    std::error_code ignored;
    if (!fs::is_regular_file(path, ignored) && !find_data(path)) continue;
    FoundData found = require_data(path, path);
    return {.kind = found.kind,
            .path = found.path,
            .why = found.path + ", found in this folder",
            .hint = "",
            .test_path = found.test_path};
  }
  return {.kind = DataKind::kGenerated,
          .path = "",
          .why = c10::str("generated digits: ", kVariable,
                          " is not set, and there is no data/mnist or mnist.zip here"),
          .hint =
              "MNIST itself: put its four files into data/mnist, or name their folder with --data:\n"
              "train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz,\n"
              "t10k-images-idx3-ubyte.gz, t10k-labels-idx1-ubyte.gz"};
}

}  // namespace lockstep::apps
