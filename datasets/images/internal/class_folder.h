#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/datasets/files/internal/zip_archive.h"
#include "lockstep/datasets/images/ignored_files.h"

namespace lockstep {

/// One image file of a class folder.
struct ClassFolderFile {
  /// Path on disk, or name inside the archive (index and size are then set too).
  ZipEntry entry;
  int64_t label = 0;  ///< index into ClassFolder::classes
};

/// The image files below `root/<class>/`, on disk or inside a zip archive.
struct ClassFolder {
  std::string path;
  std::string archive;                 ///< path of the zip file; empty for a folder on disk
  std::vector<std::string> classes;    ///< sorted by name
  std::vector<ClassFolderFile> files;  ///< sorted by class, then by name
  IgnoredFiles ignored;
};

/// Lists a class folder: a directory, a zip archive, or a folder inside one (`mnist.zip/train`). Its
/// subfolders are the classes; files in them that end with .png, .jpg, .jpeg or .webp (in any case) are the
/// images. Everything else is listed as ignored. Throws DataError if the path does not exist, if there is no
/// class folder, if a class has no image, and as list_zip() does. The message says what is there instead, and
/// names the path to pass if the classes are one folder deeper.
ClassFolder list_class_folder(const std::string& path);

/// Returns the sorted names of the folders directly in a directory, a zip archive or a folder inside one.
/// Leaves out what a desktop system leaves behind. Throws DataError if the path does not exist, and as
/// list_zip() does.
std::vector<std::string> list_folders(const std::string& path);

/// Reads files of one class folder. Not thread-safe: use one reader per thread.
class ClassFolderReader {
 public:
  explicit ClassFolderReader(const ClassFolder& folder);

  /// Returns the file's bytes. Throws DataError if the file is missing, damaged, or larger than 256 MiB.
  std::vector<uint8_t> read(const ClassFolderFile& file);

 private:
  std::optional<ZipReader> zip_;
};

/// Returns the file's name for error messages: its path on disk, or archive and entry
/// (`mnist.zip/train/0/1.png`).
std::string display_name(const ClassFolder& folder, const ClassFolderFile& file);

}  // namespace lockstep
