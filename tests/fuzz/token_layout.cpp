#include "lockstep/datasets/tokens/internal/token_layout.h"

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/tests/fuzz/fuzz.h"

namespace lockstep::fuzz {

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = text_of(data, size);
  // Large files have more bytes than there are.
  for (const uint64_t file_size : {uint64_t{size}, uint64_t{size} + (uint64_t{1} << 32)}) {
    if (file_size > size && size < kTokenHeaderBytes) continue;
    const TokenFileStart start{
        .path = "input", .bytes = bytes.substr(0, kTokenHeaderBytes), .file_size = file_size};
    for (const auto format :
         {TokenFormat::kAuto, TokenFormat::kUint16, TokenFormat::kUint32, TokenFormat::kLlmC}) {
      const auto layout = accepted<DataError>([&] { return token_layout(start, format); }, expect_plain_line);
      if (!layout) continue;
      const auto width = static_cast<uint64_t>(layout->bytes_per_token);
      expect(width == 2 || width == 4, "tokens of 2 or 4 bytes");
      expect(layout->num_tokens > 0 && layout->first_byte + layout->num_tokens * width == file_size,
             "tokens up to the file's end");
      if (layout->first_byte == 0) continue;
      const std::string header = token_header(*layout, token_header_notes(start.bytes));
      const auto again = token_layout({.path = "again", .bytes = header, .file_size = file_size}, format);
      expect(again.num_tokens == layout->num_tokens && again.bytes_per_token == layout->bytes_per_token,
             "the same layout out of what was written of it");
      expect(token_header_notes(header) == token_header_notes(start.bytes), "the same notes");
    }
  }
  return 0;
}

}  // namespace lockstep::fuzz
