//! Prints the OpenAPI document of the interface. `tegmen-admin/openapi.json` contains this text.

use tegmen_admin::Api;
use tegmen_store::Database;

fn main() {
    println!("{:#}", Api::<Database>::document());
}
