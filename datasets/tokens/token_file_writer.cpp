#include "lockstep/datasets/tokens/token_file_writer.h"

#include <stdexcept>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/tokens/internal/token_output.h"

namespace lockstep {

struct TokenFileWriter::Parts {
  explicit Parts(const TokenFileWriterOptions& options)
      : options(options),
        file(options.path, /*is_sole=*/false),
        output(file, options.path, fits_two_bytes(options.vocab_size) ? 2 : 4) {}

  /// A finished file is there for everybody.
  void check_not_finished() const {
    if (is_finished)
      throw std::logic_error("[TokenFileWriter] " + options.path + ": expected no call after finish()");
  }

  TokenFileWriterOptions options;
  NewFile file;
  TokenOutput output;
  bool is_finished = false;
};

TokenFileWriter::TokenFileWriter(const TokenFileWriterOptions& options)
    : parts_(std::make_unique<Parts>(options)) {}
TokenFileWriter::~TokenFileWriter() = default;
TokenFileWriter::TokenFileWriter(TokenFileWriter&&) noexcept = default;
TokenFileWriter& TokenFileWriter::operator=(TokenFileWriter&&) noexcept = default;

void TokenFileWriter::append(std::span<const uint32_t> tokens) {
  parts_->check_not_finished();
  for (const uint32_t token : tokens) {
    if (token >= parts_->options.vocab_size)
      throw std::invalid_argument("[TokenFileWriter] " + parts_->options.path + ": expected tokens below " +
                                  std::to_string(parts_->options.vocab_size) + ", but got " +
                                  std::to_string(token));
  }
  parts_->output.append(tokens);
}

void TokenFileWriter::finish() {
  parts_->check_not_finished();
  if (parts_->output.num_tokens() == 0)
    throw DataError(parts_->options.path + ": expected tokens to write, but there are none");
  parts_->output.finish({});
  parts_->file.commit();
  parts_->is_finished = true;
}

}  // namespace lockstep
