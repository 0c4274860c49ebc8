#include "lockstep/datasets/files/internal/find_files.h"

#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <unordered_set>

#include "lockstep/datasets/files/data_error.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/// Removes the digits at the beginning, and returns them without leading zeros.
std::string_view take_digits(std::string_view& text) {
  const size_t end = std::min(text.find_first_not_of("0123456789"), text.size());
  std::string_view digits = text.substr(0, end);
  text.remove_prefix(end);
  digits.remove_prefix(std::min(digits.find_first_not_of('0'), digits.size()));
  return digits;
}

std::vector<std::string> files_of_folder(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name[0] == '.' || name[0] == '_' || entry->is_directory(error)) continue;
    files.push_back(entry->path().string());
  }
  if (error) throw DataError(folder + ": cannot list the folder: " + error.message());
  if (files.empty()) throw DataError(folder + ": expected files in this folder, but it has none");
  return files;
}

std::vector<std::string> files_of_pattern(const std::string& pattern) {
  glob_t found{};
  // Reads the environment at most, which nothing changes meanwhile.
  const int status = ::glob(  // NOLINT(concurrency-mt-unsafe)
      pattern.c_str(), GLOB_NOSORT, nullptr, &found);
  std::vector<std::string> files;
  for (size_t i = 0; status == 0 && i < found.gl_pathc; ++i) {
    std::error_code error;
    if (!fs::is_directory(found.gl_pathv[i], error)) files.emplace_back(found.gl_pathv[i]);
  }
  ::globfree(&found);
  if (files.empty()) throw DataError(pattern + ": expected files that match this pattern, but found none");
  return files;
}

std::vector<std::string> files_of_place(const std::string& place) {
  std::error_code error;
  if (fs::is_directory(place, error)) return files_of_folder(place);
  // A file whose name has characters of patterns is taken by its name.
  const bool is_pattern = place.find_first_of("*?[") != std::string::npos && !fs::exists(place, error);
  return is_pattern ? files_of_pattern(place) : std::vector{place};
}

}  // namespace

std::vector<std::string> find_data_files(const std::vector<std::string>& places) {
  std::vector<std::string> files;
  std::unordered_set<std::string> seen;
  for (const auto& place : places) {
    auto of_place = files_of_place(place);
    std::sort(of_place.begin(), of_place.end(), natural_less);
    for (auto& file : of_place) {
      std::error_code error;
      const fs::path canonical = fs::weakly_canonical(file, error);
      if (seen.insert(error ? file : canonical.string()).second) files.push_back(std::move(file));
    }
  }
  return files;
}

bool natural_less(std::string_view a, std::string_view b) {
  const std::string_view whole_a = a;
  const std::string_view whole_b = b;
  while (!a.empty() && !b.empty()) {
    if (is_digit(a[0]) && is_digit(b[0])) {
      const auto digits_a = take_digits(a);
      const auto digits_b = take_digits(b);
      if (digits_a.size() != digits_b.size()) return digits_a.size() < digits_b.size();
      if (digits_a != digits_b) return digits_a < digits_b;
    } else if (a[0] != b[0]) {
      return static_cast<unsigned char>(a[0]) < static_cast<unsigned char>(b[0]);
    } else {
      a.remove_prefix(1);
      b.remove_prefix(1);
    }
  }
  if (a.empty() != b.empty()) return a.empty();
  return whole_a < whole_b;  // such as day_1 and day_01
}

}  // namespace lockstep
