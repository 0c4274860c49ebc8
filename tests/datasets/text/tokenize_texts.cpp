// tokenize_texts <tokenizer> <texts> <out> [as_text] [plain] [skip]: encodes and decodes texts for a test
// that compares with another library. Each text in <texts> is its length, a line feed and its bytes. Writes
// for each text a line of its ids to <out>, and the decoded text as above. as_text: special tokens are
// encoded as text; plain: none are added; skip: they are left out when decoding. Exits with 3, and the
// message, on a DataError.
#include <algorithm>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/text/open_tokenizer.h"

namespace lockstep {
namespace {

int tokenize(const std::vector<std::string>& arguments) {
  const auto has = [&](const char* flag) {
    return std::find(arguments.begin() + 3, arguments.end(), flag) != arguments.end();
  };
  const auto tokenizer = open_tokenizer(arguments[0]);
  const EncodeOptions encoding = {.adds_special_tokens = !has("plain"),
                                  .reads_special_tokens = !has("as_text")};
  const DecodeOptions decoding = {.skips_special_tokens = has("skip")};
  std::ifstream texts(arguments[1], std::ios::binary);
  std::ofstream out(arguments[2], std::ios::binary);
  for (size_t size = 0; texts >> size;) {
    texts.get();
    std::string text(size, '\0');
    texts.read(text.data(), static_cast<std::streamsize>(size));
    const auto ids = tokenizer->encode(text, encoding);
    for (const uint32_t id : ids) out << id << ' ';
    const std::string decoded = tokenizer->decode(ids, decoding);
    out << '\n' << decoded.size() << '\n' << decoded;
  }
  return out.flush() ? 0 : 1;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  if (argc < 4) {
    std::cerr << "expected a tokenizer, a file of texts and a file for the results\n";
    return 2;
  }
  try {
    return lockstep::tokenize({argv + 1, argv + argc});
  } catch (const lockstep::DataError& error) {
    std::cerr << error.what() << '\n';
    return 3;
  }
}
