#include "lockstep/apps/compare_strategies/report/result_folder.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <array>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <system_error>

#include "lockstep/apps/shared/command_line/usage_error.h"

namespace lockstep::apps {
namespace {

namespace fs = std::filesystem;

std::string time_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d_%H-%M-%S", &parts);
  return text.data();
}

void refuse_folder(const std::string& path, const std::string& reason) {
  throw UsageError(fmt::format("--out {}: expected a new or empty folder, but {}", path, reason));
}

std::string make_named(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) refuse_folder(path, "it cannot be made: " + error.message());
  if (!fs::is_directory(path, error)) refuse_folder(path, "there is something else");
  const bool is_empty = fs::is_empty(path, error);
  if (error) refuse_folder(path, "it cannot be looked into: " + error.message());
  if (!is_empty) refuse_folder(path, "there are files in it");
  return path;
}

}  // namespace

std::string make_result_folder(const std::string& out) {
  if (!out.empty()) return make_named(out);
  const std::string base = "comparisons/" + time_text();
  std::error_code error;
  fs::create_directories("comparisons", error);
  // Two comparisons may begin in the same second: the one that creates a folder owns it.
  for (int number = 1; !error; ++number) {
    std::string path = number == 1 ? base : fmt::format("{}-{}", base, number);
    if (fs::create_directory(path, error)) return path;
  }
  throw UsageError(fmt::format("{}: expected a folder that can be made, but: {}; --out names another", base,
                               error.message()));
}

WorkFolder::WorkFolder() : path_((fs::temp_directory_path() / "lockstep-comparison-XXXXXX").string()) {
  if (mkdtemp(path_.data()) == nullptr) throw std::system_error(errno, std::generic_category(), path_);
}

WorkFolder::~WorkFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace lockstep::apps
