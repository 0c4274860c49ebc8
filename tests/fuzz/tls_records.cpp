#include "lockstep/runtime/base/net/tls_records.h"

#include <algorithm>
#include <system_error>
#include <vector>

#include "lockstep/tests/fuzz/fuzz.h"

namespace lockstep::fuzz {
namespace {

using Bytes = std::vector<uint8_t>;

/// Returns the record of a peer that knows the key, with any type.
Bytes record_of(uint8_t type, std::span<const uint8_t> content) {
  TrafficKey key({}, TrafficKey::Direction::kEncrypt);
  Bytes record(content.size() + TlsRecord::kOverheadBytes);
  const size_t size = record.size() - TlsRecord::kHeaderBytes;
  record[0] = 23;
  record[1] = record[2] = 3;
  record[3] = static_cast<uint8_t>(size >> 8);
  record[4] = static_cast<uint8_t>(size);
  auto& cipher = key.begin_record(std::span(record).first<TlsRecord::kHeaderBytes>());
  uint8_t* next = record.data() + TlsRecord::kHeaderBytes;
  cipher.process(content, next);
  cipher.process({&type, 1}, next + content.size());
  cipher.write_tag(std::span(record).last<TlsRecord::kTagBytes>());
  return record;
}

/// Opens the first record of the bytes if it has arrived as a whole.
void open_first(std::span<const uint8_t> bytes) {
  try {
    const size_t size = TlsOpener::record_size(bytes);
    if (size == 0 || size > bytes.size()) return;
    TlsOpener opener(TrafficSecret{});
    Bytes content(TlsOpener::content_size(bytes.first(size)));
    opener.open(bytes.first(size), content.data());
    expect(false, "no record of another key");
  } catch (const std::system_error& error) {
    expect(error.code() == std::errc::bad_message, "bad_message");
  }
}

}  // namespace

/// Reads the input as the bytes of a peer that lacks the key, and then as the content of a record of one that
/// has it. Its first byte is then the type of the content.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  open_first({data, size});
  if (size == 0 || size > TlsRecord::kMaxContentBytes) return 0;
  const uint8_t type = data[0];
  const std::span<const uint8_t> content(data + 1, size - 1);
  const auto record = record_of(type, content);
  expect(TlsOpener::record_size(record) == record.size(), "the record's size");
  TlsOpener opener(TrafficSecret{});
  Bytes opened(content.size());
  try {
    const auto count = opener.open(record, opened.data());
    if (type == 23)
      expect(count == content.size() && std::ranges::equal(opened, content), "the user's bytes again");
    else
      expect(count.value_or(0) == 0, "no bytes of the user");
  } catch (const std::system_error& error) {
    expect(type != 23 && error.code() == std::errc::bad_message, "bad_message for another type");
  }
  return 0;
}

}  // namespace lockstep::fuzz
