#pragma once

#include <string>

#include "lockstep/datasets/text/byte_pair_files.h"
#include "lockstep/datasets/text/internal/tokenizer_parts.h"

namespace lockstep {

/// Reads a tokenizer.json. Throws DataError naming the file, the field and the value if it is of a kind that
/// is not supported, or contradicts itself.
TokenizerParts read_tokenizer_json(const std::string& path);

/// Reads GPT-2's pair of files. Throws DataError naming the file.
TokenizerParts read_byte_pair_files(const BytePairFiles& files);

}  // namespace lockstep
