#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/datasets/files/internal/zip_archive.h"

namespace lockstep {

/// One image file of a class folder.
struct ClassFolderFile {
  /// The path on disk, or the name inside the archive (whose index and size are then set as well).
  ZipEntry entry;
  int64_t label = 0;  ///< index into ClassFolder::classes
};

/// The image files below `root/<class>/`, on disk or inside a zip archive.
struct ClassFolder {
  std::string path;
  std::string archive;                 ///< the zip file; empty for a folder on disk
  std::vector<std::string> classes;    ///< sorted by name
  std::vector<ClassFolderFile> files;  ///< sorted by class, then by name
};

/// Lists a class folder: a directory, a zip archive, or a folder inside one (`mnist.zip/train`). Its classes
/// are its subfolders; their images are the files in them ending with .png, .jpg or .jpeg in any case. Other
/// files, deeper folders and names that begin with a dot or are `__MACOSX` are left out. Throws DataError
/// where the path does not exist, has no class folder, or a class holds no image, and as list_zip() does.
ClassFolder list_class_folder(const std::string& path);

/// Reads files of one class folder. A reader is for one thread at a time: several threads take one each.
class ClassFolderReader {
 public:
  explicit ClassFolderReader(const ClassFolder& folder);

  /// Returns the file's bytes. Throws DataError where the file is gone, damaged, or larger than 256 MiB.
  std::vector<uint8_t> read(const ClassFolderFile& file);

 private:
  std::optional<ZipReader> zip_;
};

/// How errors call a file: its path on disk, or archive and entry (`mnist.zip/train/0/1.png`).
std::string display_name(const ClassFolder& folder, const ClassFolderFile& file);

}  // namespace lockstep
