#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/datasets/clicks/click_row.h"
#include "lockstep/datasets/clicks/internal/row_scan.h"
#include "lockstep/datasets/files/data_error.h"
#include "lockstep/tests/fuzz/fuzz.h"

namespace lockstep::fuzz {
namespace {

/// The offsets of the well-formed rows, found the simplest way.
std::vector<uint64_t> rows_of(std::string_view text) {
  std::vector<uint64_t> offsets;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    ClickRow row;
    if (!parse_click_row(without_carriage_return(text.substr(begin, end - begin)), row)) {
      offsets.push_back(begin);
      ClickRow again;
      expect(!parse_click_row(click_row_text(row), again) && again == row, "the same row out of its text");
    }
    begin = end + 1;
  }
  return offsets;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto text = text_of(data, size);
  const auto expected = rows_of(text);
  for (const bool skips_malformed : {true, false}) {
    std::vector<uint64_t> found;
    size_t at = 0;
    const RowScan scan{.file = "input",
                       .skips_malformed = skips_malformed,
                       .read =
                           [&](char* into, size_t most) {
                             const size_t count = std::min(most, text.size() - at);
                             std::copy_n(text.data() + at, count, into);
                             at += count;
                             return count;
                           },
                       .on_row = [&](uint64_t offset) { found.push_back(offset); },
                       .bytes_at_once = 61};  // so that lines span several pieces
    const auto rows = accepted<DataError>([&] { return scan_click_rows(scan); }, expect_plain_line);
    expect(rows || !skips_malformed, "a scan that skips malformed rows");
    if (!rows) continue;
    expect(found == expected && rows->num_bytes == size, "the rows that are there");
    expect((rows->num_malformed == 0) == rows->first_malformed.empty(), "the first malformed row");
  }
  return 0;
}

}  // namespace lockstep::fuzz
