#pragma once

#include <cxxopts.hpp>
#include <string>
#include <vector>

namespace lockstep::apps {

/// The flags of train_mnist, in groups, with their help texts. All values are texts here.
cxxopts::Options make_flags(const std::vector<std::string>& strategies);

/// Every flag as it is typed, such as `--epochs`.
std::vector<std::string> flag_spellings();

/// Whether `argument` is a flag that takes the next argument as its value.
bool takes_value(const std::string& argument);

}  // namespace lockstep::apps
