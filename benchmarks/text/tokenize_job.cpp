// tokenize_job <tokenizer> <documents> <seconds>: encodes documents, which a line feed after a NUL separates,
// one after another on one thread, again and again for so long. Prints the bytes of text per second of the
// processor's time, which other processes do not lengthen, and the number of tokens, as JSON.
#include <cstdint>
#include <ctime>
#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/benchmarks/run_program.h"
#include "lockstep/datasets/text/open_tokenizer.h"

namespace lockstep::benchmarks {
namespace {

double processor_seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

std::vector<std::string> read_documents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(file), {}};
  if (all.empty()) throw std::invalid_argument("expected a file of documents, but got '" + path + "'");
  std::vector<std::string> documents;
  constexpr std::string_view kEnd("\0\n", 2);
  size_t begin = 0;
  for (size_t end = all.find(kEnd); end != std::string::npos; end = all.find(kEnd, begin)) {
    documents.push_back(all.substr(begin, end - begin));
    begin = end + kEnd.size();
  }
  return documents;
}

int measure(const std::string& tokenizer_path, const std::string& documents_path, double seconds) {
  const auto tokenizer = open_tokenizer(tokenizer_path);
  const auto documents = read_documents(documents_path);
  std::vector<uint32_t> ids;
  uint64_t bytes = 0;
  uint64_t tokens = 0;
  const auto encode_all = [&] {
    tokens = 0;
    for (const std::string& document : documents) {
      ids.clear();
      tokenizer->encode_to(ids, document);
      tokens += ids.size();
      bytes += document.size();
    }
  };
  encode_all();  // fills caches
  bytes = 0;
  const double begin = processor_seconds();
  double taken = 0;
  while (taken < seconds) {
    encode_all();
    taken = processor_seconds() - begin;
  }
  std::cout << R"({"bytes_per_second": )" << static_cast<double>(bytes) / taken << R"(, "tokens": )" << tokens
            << "}\n";
  return 0;
}

}  // namespace
}  // namespace lockstep::benchmarks

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "expected a tokenizer, a file of documents and seconds\n";
    return 2;
  }
  return lockstep::benchmarks::run_program(
      [&] { return lockstep::benchmarks::measure(argv[1], argv[2], std::stod(argv[3])); });
}
