#include "lockstep/apps/train_images/data/data_location.h"

#include <c10/util/StringUtil.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>

#include "lockstep/apps/shared/command_line/closest_name.h"
#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/images/mnist.h"

namespace lockstep::apps {
namespace {

namespace fs = std::filesystem;

constexpr const char* kVariable = "LOCKSTEP_MNIST_DIR";
constexpr const char* kExpected =
    "MNIST's IDX files, or train/ and test/ with one folder of images a class (or a zip of them)";

/// Returns the kind of data at a path, if it looks like data.
std::optional<DataKind> kind_of(const std::string& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    if (holds_mnist(path)) return DataKind::kMnistFiles;
    if (fs::is_directory(fs::path(path) / "train", ignored)) return DataKind::kClassFolders;
    return std::nullopt;
  }
  // The path may be a zip, or a folder inside one.
  for (fs::path file = path; !file.empty() && file != file.parent_path(); file = file.parent_path()) {
    if (fs::is_regular_file(file, ignored)) return DataKind::kClassFolders;
  }
  return std::nullopt;
}

DataKind require_kind(const std::string& from, const std::string& path) {
  if (const auto kind = kind_of(path)) return *kind;
  std::error_code error;
  std::string given = "the folder has neither";
  if (!fs::exists(path, error)) {
    given = error ? "it cannot be looked at: " + error.message()
                  : "there is no such file or folder" + did_you_mean(path, {"auto", "generated"});
  }
  throw DataError(c10::str(from, ": expected ", kExpected, ", but ", given));
}

}  // namespace

DataLocation locate_data(const std::string& data) {
  if (data == "generated") {
    return {.kind = DataKind::kGenerated, .path = "", .why = "generated digits, as asked for", .hint = ""};
  }
  if (data != "auto") {
    return {.kind = require_kind("--data " + data, data), .path = data, .why = data, .hint = ""};
  }
  if (const char* named = std::getenv(kVariable); named != nullptr && *named != '\0') {
    return {.kind = require_kind(c10::str(kVariable, "=", named), named),
            .path = named,
            .why = c10::str(named, ", named by ", kVariable),
            .hint = "",
            .variable = kVariable};
  }
  for (const std::string path : {"data/mnist", "mnist.zip"}) {
    if (const auto kind = kind_of(path)) {
      return {.kind = *kind, .path = path, .why = path + ", found in this folder", .hint = ""};
    }
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
