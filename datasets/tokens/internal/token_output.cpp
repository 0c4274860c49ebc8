#include "lockstep/datasets/tokens/internal/token_output.h"

#include <utility>

#include "lockstep/datasets/files/data_error.h"

namespace lockstep {
namespace {

constexpr size_t kFlushBytes = size_t{1} << 20;

}  // namespace

void append_tokens(std::string& bytes, std::span<const uint32_t> tokens, int width) {
  bytes.reserve(bytes.size() + tokens.size() * static_cast<size_t>(width));
  for (const uint32_t token : tokens) {
    for (int byte = 0; byte < width; ++byte) bytes.push_back(static_cast<char>(token >> (8 * byte)));
  }
}

TokenOutput::TokenOutput(NewFile& file, std::string path, int width)
    : file_(&file), path_(std::move(path)), layout_{.bytes_per_token = width} {
  file_->append(std::string(kTokenHeaderBytes, '\0'));
}

void TokenOutput::append(std::span<const uint32_t> tokens) {
  layout_.num_tokens += tokens.size();
  if (layout_.num_tokens > kMaxTokens)
    throw DataError(path_ + ": expected at most " + std::to_string(kMaxTokens) +
                    " tokens for one file; split the text into several files");
  append_tokens(bytes_, tokens, layout_.bytes_per_token);
  if (bytes_.size() < kFlushBytes) return;
  file_->append(bytes_);
  bytes_.clear();
}

void TokenOutput::finish(const TokenHeaderNotes& notes) {
  file_->append(bytes_);
  bytes_.clear();
  file_->overwrite(0, token_header(layout_, notes));
}

}  // namespace lockstep
