# Finds OpenSSL's libcrypto and libssl. An installed lockstep runs this same file for its users.

if(NOT TARGET OpenSSL::Crypto)
  find_package(OpenSSL REQUIRED)
  # A target that links the layer, in any folder, must see what the layer links.
  set_target_properties(OpenSSL::Crypto OpenSSL::SSL PROPERTIES IMPORTED_GLOBAL TRUE)
endif()
