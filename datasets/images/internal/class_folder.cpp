#include "lockstep/datasets/images/internal/class_folder.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/files/internal/file_bytes.h"
#include "lockstep/datasets/images/internal/image_names.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxFileBytes = uint64_t{256} << 20;

/// A user's path, split where it enters a zip archive.
struct Location {
  std::string directory;  // on disk; empty inside an archive
  std::string archive;
  std::string prefix;  // the folder inside the archive: empty, or ends with '/'
};

std::optional<Location> find_location(const std::string& path) {
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

Location locate(const std::string& path) {
  auto location = find_location(path);
  if (!location) throw DataError(path + ": expected a folder or a zip archive, but there is none");
  return std::move(*location);
}

/// The content of a class folder.
struct Listing {
  std::map<std::string, std::vector<ZipEntry>> classes;  // images of each class, by the class's name
  std::set<std::string> ignored;
  std::map<std::string, std::string> deeper;  // by class: an image one folder deeper, as in `pets/cat/1.png`
};

std::string joined(const std::string& folder, std::string_view name) {
  return folder + "/" + std::string(name);
}

/// Returns an image directly in the folder, or an empty string.
std::string any_image_in(const fs::path& folder) {
  std::error_code ignored;
  for (const auto& file : fs::directory_iterator(folder, ignored)) {
    std::string name = file.path().filename().string();
    if (!is_hidden(name) && has_image_extension(name)) return name;
  }
  return "";
}

void list_class_on_disk(const fs::path& folder, const std::string& class_name, Listing& listing) {
  auto& files = listing.classes[class_name];
  for (const auto& file : fs::directory_iterator(folder)) {
    const std::string name = file.path().filename().string();
    if (is_hidden(name)) continue;
    std::string relative = joined(class_name, name);
    if (has_image_extension(name)) {
      files.push_back({.name = file.path().string()});
    } else if (file.is_directory()) {
      const std::string image = any_image_in(file.path());
      if (!image.empty()) listing.deeper.try_emplace(class_name, joined(relative, image));
      listing.ignored.insert(relative + "/");
    } else {
      listing.ignored.insert(std::move(relative));
    }
  }
}

/// Calls `list(entry)` for each entry of a folder that is not hidden.
template <typename List>
void for_each_in(const std::string& directory, const List& list) {
  try {
    for (const auto& entry : fs::directory_iterator(directory)) {
      if (!is_hidden(entry.path().filename().string())) list(entry);
    }
  } catch (const fs::filesystem_error& error) {
    throw DataError(directory + ": cannot list the folder: " + error.what());
  }
}

Listing list_on_disk(const std::string& directory) {
  Listing listing;
  for_each_in(directory, [&](const fs::directory_entry& entry) {
    std::string name = entry.path().filename().string();
    if (entry.is_directory()) {
      list_class_on_disk(entry.path(), name, listing);
    } else {
      listing.ignored.insert(std::move(name));
    }
  });
  return listing;
}

/// Adds an entry at the path `rest` in the folder of a class.
void list_in_class(const std::string& class_name, std::string_view rest, ZipEntry entry, Listing& listing) {
  // An archive need not list its folders, but if it does, this also finds empty classes.
  auto& files = listing.classes[class_name];
  const size_t slash = rest.find('/');
  const std::string_view name = rest.substr(0, slash);
  if (name.empty() || is_hidden(name)) return;
  if (slash == std::string_view::npos) {
    if (has_image_extension(name)) {
      files.push_back(std::move(entry));
    } else {
      listing.ignored.insert(joined(class_name, name));
    }
    return;
  }
  listing.ignored.insert(joined(class_name, name) + "/");
  const std::string_view deeper = rest.substr(slash + 1);
  if (deeper.find('/') == std::string_view::npos && !is_hidden(deeper) && has_image_extension(deeper))
    listing.deeper.try_emplace(class_name, joined(class_name, rest));
}

Listing list_in_archive(const Location& location) {
  Listing listing;
  for (auto& entry : list_zip(location.archive)) {
    // The entry's name moves away with it.
    const std::string path = entry.name;
    if (!path.starts_with(location.prefix)) continue;
    const std::string_view rest = std::string_view(path).substr(location.prefix.size());
    const size_t slash = rest.find('/');
    const std::string name(rest.substr(0, slash));
    if (name.empty() || is_hidden(name)) continue;
    if (slash == std::string_view::npos) {
      listing.ignored.insert(name);
    } else {
      list_in_class(name, rest.substr(slash + 1), std::move(entry), listing);
    }
  }
  return listing;
}

std::string list_of(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

[[noreturn]] void throw_no_classes(const std::string& path, const Location& location,
                                   const IgnoredFiles& ignored) {
  std::string found = "none";
  if (!ignored.names.empty()) {
    found += ", but " + ignored.describe();
  } else if (!location.prefix.empty()) {
    found += "; the archive's folders are " + list_of(list_folders(location.archive));
  }
  throw DataError(path, "class folders", "at least one, as in <path>/<class>/<image>.png", found);
}

[[noreturn]] void throw_empty_class(const std::string& path, const std::string& name,
                                    const Listing& listing) {
  std::string found = "none";
  if (const auto deeper = listing.deeper.find(name); deeper != listing.deeper.end()) {
    found += ", but images in folders within it, such as " + deeper->second;
    const bool all_are_empty = std::all_of(listing.classes.begin(), listing.classes.end(),
                                           [](const auto& other) { return other.second.empty(); });
    if (all_are_empty) {
      const std::string separator = path.ends_with('/') ? "" : "/";
      found += "; to use these folders as the classes, pass " + path + separator + name;
    }
  } else {
    IgnoredFiles others;
    std::copy_if(listing.ignored.begin(), listing.ignored.end(), std::back_inserter(others.names),
                 [&](const std::string& other) { return other.starts_with(name + "/"); });
    if (!others.names.empty()) found += ", but " + others.describe();
  }
  throw DataError(path, "class '" + name + "'",
                  std::string("at least one ") + kImageExtensions + " image in its folder", found);
}

}  // namespace

ClassFolder list_class_folder(const std::string& path) {
  const Location location = locate(path);
  Listing listing = location.archive.empty() ? list_on_disk(location.directory) : list_in_archive(location);
  ClassFolder folder{.path = path,
                     .archive = location.archive,
                     .classes = {},
                     .files = {},
                     .ignored = {{listing.ignored.begin(), listing.ignored.end()}}};
  if (listing.classes.empty()) throw_no_classes(path, location, folder.ignored);
  for (auto& [name, files] : listing.classes) {
    if (files.empty()) throw_empty_class(path, name, listing);
    std::sort(files.begin(), files.end(),
              [](const ZipEntry& left, const ZipEntry& right) { return left.name < right.name; });
    const auto label = static_cast<int64_t>(folder.classes.size());
    folder.classes.push_back(name);
    for (auto& file : files) folder.files.push_back({.entry = std::move(file), .label = label});
  }
  return folder;
}

std::vector<std::string> list_folders(const std::string& path) {
  const Location location = locate(path);
  std::set<std::string> folders;
  if (location.archive.empty()) {
    for_each_in(location.directory, [&](const fs::directory_entry& entry) {
      if (entry.is_directory()) folders.insert(entry.path().filename().string());
    });
  } else {
    for (const ZipEntry& entry : list_zip(location.archive)) {
      if (!entry.name.starts_with(location.prefix)) continue;
      const size_t slash = entry.name.find('/', location.prefix.size());
      if (slash == std::string::npos) continue;
      std::string name = entry.name.substr(location.prefix.size(), slash - location.prefix.size());
      if (!is_hidden(name)) folders.insert(std::move(name));
    }
  }
  return {folders.begin(), folders.end()};
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
