#include "lockstep/datasets/images/internal/class_folder.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <string_view>
#include <system_error>
#include <utility>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/files/internal/file_bytes.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxFileBytes = uint64_t{256} << 20;

/// The files of each class, by the class's name.
using FilesByClass = std::map<std::string, std::vector<ZipEntry>>;

/// A user's path, split where it enters a zip archive.
struct Location {
  std::string directory;  // on disk; empty inside an archive
  std::string archive;
  std::string prefix;  // the folder inside the archive: empty, or ends with '/'
};

bool has_image_extension(std::string_view name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return false;
  std::string extension(name.substr(dot));
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return extension == ".png" || extension == ".jpg" || extension == ".jpeg";
}

/// Whether a desktop system left the file beside the user's own files.
bool is_hidden(std::string_view name) {
  return name.starts_with('.') || name == "__MACOSX";
}

std::optional<Location> locate(const std::string& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return Location{.directory = path, .archive = {}, .prefix = {}};
  fs::path prefix;
  for (fs::path archive = path; !archive.empty(); archive = archive.parent_path()) {
    if (fs::is_regular_file(archive, ignored)) {
      std::string inside = prefix.generic_string();
      while (inside.ends_with('/')) inside.pop_back();
      return Location{
          .directory = {}, .archive = archive.string(), .prefix = inside.empty() ? inside : inside + "/"};
    }
    if (archive == archive.parent_path()) break;
    prefix = archive.filename() / prefix;
  }
  return std::nullopt;
}

FilesByClass files_on_disk(const std::string& directory) {
  FilesByClass classes;
  try {
    for (const auto& folder : fs::directory_iterator(directory)) {
      const std::string name = folder.path().filename().string();
      if (!folder.is_directory() || is_hidden(name)) continue;
      auto& files = classes[name];
      for (const auto& file : fs::directory_iterator(folder.path())) {
        const std::string file_name = file.path().filename().string();
        if (is_hidden(file_name) || !has_image_extension(file_name)) continue;
        files.push_back({.name = file.path().string()});
      }
    }
  } catch (const fs::filesystem_error& error) {
    throw DataError(directory + ": cannot list the folder: " + error.what());
  }
  return classes;
}

FilesByClass files_in_archive(const Location& location) {
  FilesByClass classes;
  for (auto& entry : list_zip(location.archive)) {
    std::string_view rest = entry.name;
    if (!rest.starts_with(location.prefix)) continue;
    rest.remove_prefix(location.prefix.size());
    const size_t slash = rest.find('/');
    if (slash == std::string_view::npos) continue;
    const std::string_view class_name = rest.substr(0, slash);
    if (is_hidden(class_name)) continue;
    // An archive need not list its folders, but if it does, this also finds empty classes.
    auto& files = classes[std::string(class_name)];
    const std::string_view file_name = rest.substr(slash + 1);
    if (file_name.find('/') != std::string_view::npos || is_hidden(file_name)) continue;
    if (has_image_extension(file_name)) files.push_back(std::move(entry));
  }
  return classes;
}

}  // namespace

ClassFolder list_class_folder(const std::string& path) {
  const auto location = locate(path);
  if (!location) throw DataError(path + ": expected a folder or a zip archive, but there is none");
  FilesByClass classes =
      location->archive.empty() ? files_on_disk(location->directory) : files_in_archive(*location);
  if (classes.empty()) {
    throw DataError(path, "class folders", "at least one, as in <path>/<class>/<image>.png", "none");
  }
  ClassFolder folder{.path = path, .archive = location->archive, .classes = {}, .files = {}};
  for (auto& [name, files] : classes) {
    if (files.empty()) {
      throw DataError(path, "class '" + name + "'", "at least one .png, .jpg or .jpeg image in its folder",
                      "none");
    }
    std::sort(files.begin(), files.end(),
              [](const ZipEntry& left, const ZipEntry& right) { return left.name < right.name; });
    const auto label = static_cast<int64_t>(folder.classes.size());
    folder.classes.push_back(name);
    for (auto& file : files) folder.files.push_back({.entry = std::move(file), .label = label});
  }
  return folder;
}

ClassFolderReader::ClassFolderReader(const ClassFolder& folder) {
  if (!folder.archive.empty()) zip_.emplace(folder.archive);
}

std::vector<uint8_t> ClassFolderReader::read(const ClassFolderFile& file) {
  return zip_ ? zip_->read(file.entry) : read_file(file.entry.name, kMaxFileBytes);
}

std::string display_name(const ClassFolder& folder, const ClassFolderFile& file) {
  return folder.archive.empty() ? file.entry.name : folder.archive + "/" + file.entry.name;
}

}  // namespace lockstep
