#pragma once

#include <string>

namespace lockstep::apps {

enum class DataKind { kMnistFiles, kClassFolders, kGenerated };

/// Where the images come from.
struct DataLocation {
  DataKind kind = DataKind::kGenerated;
  std::string path;           ///< folder or zip; empty for generated digits
  std::string why;            ///< one line: which was taken, and why
  std::string hint;           ///< how to get something better, in lines; may be empty
  std::string variable = "";  ///< the environment variable that named it; empty: none did
};

/// What --data stands for: `generated`, a path, or `auto`, which takes the folder that LOCKSTEP_MNIST_DIR
/// names, ./data/mnist or ./mnist.zip, else generated digits. Throws DataError for a path (or a folder of
/// that variable's) that holds neither MNIST's files nor train/ and test/.
DataLocation locate_data(const std::string& data);

}  // namespace lockstep::apps
