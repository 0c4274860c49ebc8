#include "lockstep/runtime/base/files/internal/zip_directory.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/runtime/base/internal/text_excerpt.h"

namespace lockstep {
namespace {

constexpr uint32_t kLocalSignature = 0x04034b50;
constexpr uint32_t kEntrySignature = 0x02014b50;
constexpr uint32_t kEndSignature = 0x06054b50;
constexpr uint32_t kEnd64Signature = 0x06064b50;
constexpr uint32_t kEnd64LocatorSignature = 0x07064b50;
constexpr uint64_t kLocalSize = 30;
constexpr uint64_t kEntrySize = 46;
constexpr uint64_t kEndSize = 22;
constexpr uint64_t kEnd64Size = 56;
constexpr uint64_t kEnd64LocatorSize = 20;
constexpr uint64_t kMaxComment = 0xFFFF;
constexpr uint32_t kInZip64 = 0xFFFFFFFF;  // marks a number that is too large for its field
constexpr uint16_t kZip64Tag = 1;

uint64_t number_at(std::string_view bytes, size_t at, size_t num_bytes) {
  uint64_t value = 0;
  for (size_t i = num_bytes; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  return value;
}

/// Position of the directory in the file.
struct Directory {
  uint64_t begin;
  uint64_t size;
};

class DirectoryReader {
 public:
  explicit DirectoryReader(const InputFile& file) : file_(file) {}

  std::map<std::string, ZipRecord> read() {
    const Directory directory = find_directory();
    const std::string bytes = read_bytes(directory.begin, directory.size);
    std::string_view rest = bytes;
    while (!rest.empty()) read_entry(rest, directory.begin);
    check_overlaps();
    return std::move(records_);
  }

 private:
  [[noreturn]] void fail(const std::string& part, const std::string& expected,
                         const std::string& actual) const {
    throw CheckpointError(file_.path(), part, expected, actual);
  }

  std::string read_bytes(uint64_t begin, uint64_t size) const {
    if (begin > file_.size() || size > file_.size() - begin)
      fail("zip directory", "a place within the file's " + std::to_string(file_.size()) + " bytes",
           "one beyond");
    std::string bytes(size, '\0');
    file_.read(begin, bytes.data(), bytes.size());
    return bytes;
  }

  Directory find_directory() const {
    const uint64_t tail_size = std::min(file_.size(), kEndSize + kMaxComment);
    const std::string tail = read_bytes(file_.size() - tail_size, tail_size);
    for (uint64_t at = tail_size - std::min(tail_size, kEndSize); tail_size >= kEndSize; --at) {
      const bool is_end =
          number_at(tail, at, 4) == kEndSignature && at + kEndSize + number_at(tail, at + 20, 2) == tail_size;
      if (is_end) return directory_of(tail, at, file_.size() - tail_size + at);
      if (at == 0) break;
    }
    fail("zip directory", "a zip archive, as torch.save() writes it", "none, or one that is cut off");
  }

  /// `end` is where the record that ends the directory begins in the file.
  Directory directory_of(const std::string& tail, uint64_t at, uint64_t end) const {
    Directory directory{.begin = number_at(tail, at + 16, 4), .size = number_at(tail, at + 12, 4)};
    if (end >= kEnd64LocatorSize) {
      const std::string locator = read_bytes(end - kEnd64LocatorSize, kEnd64LocatorSize);
      if (number_at(locator, 0, 4) == kEnd64LocatorSignature) {
        end = number_at(locator, 8, 8);
        const std::string end64 = read_bytes(end, kEnd64Size);
        if (number_at(end64, 0, 4) != kEnd64Signature)
          fail("zip directory", "an end of zip64", "other bytes");
        directory = {.begin = number_at(end64, 48, 8), .size = number_at(end64, 40, 8)};
      }
    }
    if (directory.begin > end || directory.size != end - directory.begin)
      fail("zip directory", "a directory that ends at byte " + std::to_string(end), "another place");
    return directory;
  }

  std::string_view take(std::string_view& rest, uint64_t count) const {
    if (count > rest.size()) fail("zip directory", "whole entries", "one that is cut off");
    const auto taken = rest.substr(0, count);
    rest.remove_prefix(count);
    return taken;
  }

  void read_entry(std::string_view& rest, uint64_t data_end) {
    const auto entry = take(rest, kEntrySize);
    if (number_at(entry, 0, 4) != kEntrySignature) fail("zip directory", "an entry", "other bytes");
    const std::string name(take(rest, number_at(entry, 28, 2)));
    const auto extra = take(rest, number_at(entry, 30, 2));
    take(rest, number_at(entry, 32, 2));
    const std::string part = "record " + quoted_excerpt(name);
    ZipRecord record{.size = number_at(entry, 20, 4),
                     .crc32 = static_cast<uint32_t>(number_at(entry, 16, 4)),
                     .is_plain = (number_at(entry, 8, 2) & 1) == 0 && number_at(entry, 10, 2) == 0};
    uint64_t unpacked_size = number_at(entry, 24, 4);
    uint64_t local = number_at(entry, 42, 4);
    const auto wide = zip64_numbers(extra);
    size_t next = 0;
    for (uint64_t* number : {&unpacked_size, &record.size, &local}) {
      if (*number != kInZip64) continue;
      if (next == wide.size()) fail(part, "a number of zip64", "none");
      *number = wide[next++];
    }
    if (record.is_plain && unpacked_size != record.size)
      fail(part, "as many bytes stored as there are", "another number");
    record.begin = data_begin(local, part, data_end);
    if (record.begin > data_end || record.size > data_end - record.begin)
      fail(part, "bytes before the directory", std::to_string(record.size) + " that go beyond");
    if (!records_.emplace(name, record).second) fail(part, "each name once", "it twice");
  }

  std::vector<uint64_t> zip64_numbers(std::string_view extra) const {
    std::vector<uint64_t> numbers;
    while (extra.size() >= 4) {
      const auto head = take(extra, 4);
      auto body = take(extra, number_at(head, 2, 2));
      if (number_at(head, 0, 2) != kZip64Tag) continue;
      while (body.size() >= 8) numbers.push_back(number_at(take(body, 8), 0, 8));
    }
    return numbers;
  }

  /// Skips the record's own header: the directory does not tell the length of its varying fields.
  uint64_t data_begin(uint64_t local, const std::string& part, uint64_t data_end) const {
    if (local > data_end || kLocalSize > data_end - local)
      fail(part, "a place before the directory", "one beyond");
    const std::string header = read_bytes(local, kLocalSize);
    if (number_at(header, 0, 4) != kLocalSignature)
      fail(part, "a record where the directory says", "other bytes");
    return local + kLocalSize + number_at(header, 26, 2) + number_at(header, 28, 2);
  }

  void check_overlaps() const {
    std::vector<std::pair<ZipRecord, std::string>> sorted;
    for (const auto& [name, record] : records_) sorted.emplace_back(record, name);
    std::sort(sorted.begin(), sorted.end(), [](const auto& left, const auto& right) {
      return left.first.begin != right.first.begin ? left.first.begin < right.first.begin
                                                   : left.first.size < right.first.size;
    });
    uint64_t end = 0;
    for (const auto& [record, name] : sorted) {
      if (record.begin < end) fail("record " + quoted_excerpt(name), "bytes of its own", "those of another");
      end = record.begin + record.size;
    }
  }

  const InputFile& file_;
  std::map<std::string, ZipRecord> records_;
};

}  // namespace

std::map<std::string, ZipRecord> read_zip_directory(const InputFile& file) {
  return DirectoryReader(file).read();
}

}  // namespace lockstep
