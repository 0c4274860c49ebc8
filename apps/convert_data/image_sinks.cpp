#include <cerrno>
#include <filesystem>
#include <mutex>
#include <set>
#include <span>
#include <string_view>
#include <system_error>
#include <vector>

#include <zlib.h>

#include "lockstep/apps/convert_data/image_conversion.h"
#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/files/internal/cache_file.h"
#include "lockstep/runtime/base/files/output_file.h"

namespace lockstep::apps {
namespace {

[[noreturn]] void throw_repeated(const std::string& name) {
  throw DataError("image", "name", "one image of each name", "another " + name);
}

class ImageFolderSink final : public ImageSink {
 public:
  explicit ImageFolderSink(std::string folder) : folder_(std::move(folder)) {}

  bool is_parallel() const override { return true; }

  void write(const Image& image) override {
    const std::filesystem::path path = std::filesystem::path(folder_) / image.name;
    make_class(path.parent_path());
    try {
      OutputFile file(path.string());
      file.append(std::span(static_cast<const uint8_t*>(image.bytes), image.size));
    } catch (const std::system_error& error) {
      if (error.code() == std::errc::file_exists) throw_repeated(image.name);
      throw;
    }
  }

 private:
  void make_class(const std::filesystem::path& folder) {
    const std::scoped_lock lock(mutex_);
    if (!classes_.insert(folder.string()).second) return;
    std::error_code error;
    std::filesystem::create_directory(folder, error);
    if (error) throw std::system_error(error, folder.string() + ": cannot create the folder");
  }

  std::string folder_;
  std::mutex mutex_;
  std::set<std::string> classes_;  // that have a folder
};

/// Writes numbers as zip archives have them.
class LittleEndianBytes {
 public:
  LittleEndianBytes& put(uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) text_ += static_cast<char>(value >> (8 * i));
    return *this;
  }
  LittleEndianBytes& text(std::string_view text) {
    text_ += text;
    return *this;
  }
  const std::string& str() const { return text_; }

 private:
  std::string text_;
};

// PKWARE's .ZIP File Format Specification 6.3, with the extensions of zip64 where sizes and offsets need
// them.
constexpr uint32_t kMost32 = 0xffffffff;
constexpr uint16_t kMost16 = 0xffff;
constexpr uint16_t kNameIsUtf8 = 1 << 11;
constexpr uint16_t kVersion = 20;
constexpr uint16_t kVersionZip64 = 45;
// 1980-01-01: the same images give the same archive.
constexpr uint32_t kNoTime = (1U << 5 | 1U) << 16;

/// Images are compressed already, so that the archive stores them as they are.
class ImageZipSink final : public ImageSink {
 public:
  explicit ImageZipSink(const std::string& path) : file_(path, /*is_sole=*/false) {}

  bool is_parallel() const override { return false; }

  void write(const Image& image) override {
    if (!names_.insert(image.name).second) throw_repeated(image.name);
    const std::string_view bytes(static_cast<const char*>(image.bytes), image.size);
    const uint64_t offset = file_.size();
    const auto checksum =
        static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
    LittleEndianBytes header;
    header.put(0x04034b50, 4).put(kVersion, 2).put(kNameIsUtf8, 2).put(0, 2).put(kNoTime, 4);
    // Less than 4 GiB, as a row group's binaries are.
    header.put(checksum, 4).put(bytes.size(), 4).put(bytes.size(), 4).put(image.name.size(), 2).put(0, 2);
    file_.append(header.text(image.name).str());
    file_.append(bytes);
    const bool is_far = offset >= kMost32;
    LittleEndianBytes entry;
    entry.put(0x02014b50, 4).put(kVersionZip64, 2).put(is_far ? kVersionZip64 : kVersion, 2);
    entry.put(kNameIsUtf8, 2).put(0, 2).put(kNoTime, 4).put(checksum, 4);
    entry.put(bytes.size(), 4).put(bytes.size(), 4).put(image.name.size(), 2).put(is_far ? 12 : 0, 2);
    entry.put(0, 2).put(0, 2).put(0, 2).put(0, 4).put(is_far ? kMost32 : offset, 4).text(image.name);
    if (is_far) entry.put(1, 2).put(8, 2).put(offset, 8);
    directory_ += entry.str();
  }

  void finish() override {
    const uint64_t begin = file_.size();
    const uint64_t size = directory_.size();
    const uint64_t count = names_.size();
    file_.append(directory_);
    LittleEndianBytes end;
    if (count >= kMost16 || begin >= kMost32 || size >= kMost32) {
      end.put(0x06064b50, 4).put(44, 8).put(kVersionZip64, 2).put(kVersionZip64, 2).put(0, 4).put(0, 4);
      end.put(count, 8).put(count, 8).put(size, 8).put(begin, 8);
      end.put(0x07064b50, 4).put(0, 4).put(begin + size, 8).put(1, 4);
    }
    const uint64_t count16 = std::min<uint64_t>(count, kMost16);
    end.put(0x06054b50, 4).put(0, 2).put(0, 2).put(count16, 2).put(count16, 2);
    end.put(std::min<uint64_t>(size, kMost32), 4).put(std::min<uint64_t>(begin, kMost32), 4).put(0, 2);
    file_.append(end.str());
    file_.commit();
  }

 private:
  NewFile file_;
  std::set<std::string> names_;
  std::string directory_;
};

}  // namespace

std::unique_ptr<ImageSink> image_folder_sink(const std::string& folder) {
  return std::make_unique<ImageFolderSink>(folder);
}

std::unique_ptr<ImageSink> image_zip_sink(const std::string& path) {
  return std::make_unique<ImageZipSink>(path);
}

}  // namespace lockstep::apps
