#include "lockstep/datasets/text/open_tokenizer.h"

#include <array>
#include <filesystem>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/text/byte_pair_tokenizer.h"
#include "lockstep/datasets/text/byte_tokenizer.h"

namespace lockstep {

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& name) {
  namespace fs = std::filesystem;
  if (name == "bytes") return std::make_unique<ByteTokenizer>();
  std::error_code ignored;
  const std::string file_name = fs::path(name).filename().string();
  const bool is_merges = file_name == "vocab.bpe" || file_name == "merges.txt";
  if (!fs::is_directory(name, ignored)) {
    if (!is_merges) return std::make_unique<BytePairTokenizer>(name);
    const fs::path json =
        fs::path(name).parent_path() / (file_name == "vocab.bpe" ? "encoder.json" : "vocab.json");
    return std::make_unique<BytePairTokenizer>(BytePairFiles{.vocabulary = json.string(), .merges = name});
  }

  const auto file = [&](const char* file_name) { return (fs::path(name) / file_name).string(); };
  const auto exists = [&](const std::string& path) { return fs::exists(path, ignored); };
  if (exists(file("tokenizer.json"))) return std::make_unique<BytePairTokenizer>(file("tokenizer.json"));
  const std::array<BytePairFiles, 2> pairs = {
      BytePairFiles{.vocabulary = file("vocab.json"), .merges = file("merges.txt")},
      BytePairFiles{.vocabulary = file("encoder.json"), .merges = file("vocab.bpe")}};
  for (const BytePairFiles& files : pairs)
    if (exists(files.vocabulary) && exists(files.merges)) return std::make_unique<BytePairTokenizer>(files);
  throw DataError(name, "tokenizer",
                  "tokenizer.json, vocab.json and merges.txt, or encoder.json and vocab.bpe",
                  "a folder without them");
}

}  // namespace lockstep
