#include "lockstep/datasets/files/internal/zip_archive.h"

#include <sys/stat.h>
#include <unistd.h>
#include <zip.h>

#include <cctype>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/files/internal/open_file.h"

namespace lockstep {
namespace {

constexpr uint64_t kMaxRatioFromBytes = uint64_t{1} << 20;

std::string entry_file(const std::string& archive, const std::string& name) {
  return archive + "/" + name;
}

::zip* open_archive(const std::string& path) {
  const OpenFile file(path);
  // libzip takes an empty file for an archive without entries.
  if (file.version().size == 0) throw DataError(path + ": cannot open as a zip archive: the file is empty");
  const int descriptor = file.duplicate();
  int code = 0;
  ::zip* archive = zip_fdopen(descriptor, 0, &code);
  if (archive == nullptr) {
    ::close(descriptor);
    zip_error_t error;
    zip_error_init_with_code(&error, code);
    const std::string message = path + ": cannot open as a zip archive: " + zip_error_strerror(&error);
    zip_error_fini(&error);
    throw DataError(message);
  }
  return archive;
}

/// Returns the fault of an entry's name, or nullptr.
const char* name_fault(std::string_view name) {
  if (name.empty()) return "an empty name";
  if (name.front() == '/') return "an absolute name";
  if (name.find('\\') != std::string_view::npos) return "a name with a backslash";
  if (name.size() >= 2 && name[1] == ':' && std::isalpha(static_cast<unsigned char>(name[0])) != 0) {
    return "a name with a drive letter";
  }
  if (name.back() == '/') name.remove_suffix(1);
  while (true) {
    const size_t slash = name.find('/');
    const std::string_view part = name.substr(0, slash);
    if (part.empty()) return "a name with an empty part";
    if (part == "..") return "a name with '..'";
    if (part == ".") return "a name with '.'";
    if (slash == std::string_view::npos) return nullptr;
    name.remove_prefix(slash + 1);
  }
}

/// Unix attributes hold the file's mode in their upper half; archives of other systems leave it zero.
bool is_special_file(::zip* archive, uint64_t index) {
  zip_uint8_t system = 0;
  zip_uint32_t attributes = 0;
  if (zip_file_get_external_attributes(archive, index, 0, &system, &attributes) != 0) return false;
  const mode_t type = (attributes >> 16) & S_IFMT;
  return type != 0 && type != S_IFREG && type != S_IFDIR;
}

void check_entry(::zip* archive, const zip_stat_t& status, const std::string& file, const ZipLimits& limits) {
  if (is_special_file(archive, status.index)) {
    throw DataError(file, "file type", "a regular file or folder", "a symbolic link or special file");
  }
  if (status.encryption_method != ZIP_EM_NONE) {
    throw DataError(file, "encryption", "none", "an encrypted entry");
  }
  if (status.size > limits.max_entry_bytes) {
    throw DataError(file, "size", "at most " + std::to_string(limits.max_entry_bytes) + " bytes",
                    std::to_string(status.size));
  }
  if (status.size > kMaxRatioFromBytes && status.size / limits.max_compression_ratio > status.comp_size) {
    throw DataError(file, "compression ratio", "at most " + std::to_string(limits.max_compression_ratio),
                    std::to_string(status.size) + " bytes out of " + std::to_string(status.comp_size));
  }
}

}  // namespace

std::vector<ZipEntry> list_zip(const std::string& path, const ZipLimits& limits) {
  const std::unique_ptr<::zip, void (*)(::zip*)> archive(open_archive(path), zip_discard);

  const zip_int64_t count = zip_get_num_entries(archive.get(), 0);
  std::vector<ZipEntry> entries;
  entries.reserve(static_cast<size_t>(count));
  std::unordered_set<std::string_view> names;
  names.reserve(static_cast<size_t>(count));
  for (zip_int64_t i = 0; i < count; ++i) {
    const auto index = static_cast<zip_uint64_t>(i);
    zip_stat_t status;
    if (zip_stat_index(archive.get(), index, ZIP_FL_ENC_RAW, &status) != 0) {
      throw DataError(path + ": entry " + std::to_string(i) + ": " + zip_strerror(archive.get()));
    }
    const std::string name = status.name;
    if (const char* fault = name_fault(name)) {
      throw DataError(path, "entry '" + name + "'", "a name inside the archive's folder", fault);
    }
    check_entry(archive.get(), status, entry_file(path, name), limits);
    // The archive owns the name's memory, which lives as long as the set.
    if (!names.insert(status.name).second) {
      throw DataError(path, "entry '" + name + "'", "every name once", "a duplicate");
    }
    entries.push_back({.name = name, .index = index, .size = status.size});
  }
  return entries;
}

void ZipReader::Close::operator()(::zip* archive) const {
  zip_discard(archive);
}

ZipReader::ZipReader(std::string path) : path_(std::move(path)), archive_(open_archive(path_)) {}
ZipReader::~ZipReader() = default;
ZipReader::ZipReader(ZipReader&&) noexcept = default;
ZipReader& ZipReader::operator=(ZipReader&&) noexcept = default;

std::vector<uint8_t> ZipReader::read(const ZipEntry& entry) {
  const std::string file = entry_file(path_, entry.name);
  zip_stat_t status;
  if (zip_stat_index(archive_.get(), entry.index, ZIP_FL_ENC_RAW, &status) != 0 ||
      entry.name != status.name || entry.size != status.size) {
    throw DataError(file + ": the archive has changed since it was listed");
  }
  const std::unique_ptr<zip_file_t, int (*)(zip_file_t*)> stream(
      zip_fopen_index(archive_.get(), entry.index, 0), zip_fclose);
  if (stream == nullptr) {
    throw DataError(file + ": cannot open: " + zip_strerror(archive_.get()));
  }

  std::vector<uint8_t> bytes(entry.size);
  uint64_t done = 0;
  while (done < entry.size) {
    const zip_int64_t count = zip_fread(stream.get(), bytes.data() + done, entry.size - done);
    if (count < 0) throw DataError(file + ": damaged entry: " + zip_file_strerror(stream.get()));
    if (count == 0) {
      throw DataError(file, "size", std::to_string(entry.size) + " bytes", std::to_string(done));
    }
    done += static_cast<uint64_t>(count);
  }
  // libzip compares the checksum at the end of the stream.
  uint8_t beyond = 0;
  const zip_int64_t rest = zip_fread(stream.get(), &beyond, 1);
  if (rest < 0) throw DataError(file + ": damaged entry: " + zip_file_strerror(stream.get()));
  if (rest > 0) throw DataError(file, "size", std::to_string(entry.size) + " bytes", "more");
  return bytes;
}

}  // namespace lockstep
